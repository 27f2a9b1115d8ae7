"""Where the files lie that the code reads besides itself: defaults, tables, few-shots, the serving agent."""

from __future__ import annotations

from pathlib import Path

_OPS = Path(__file__).resolve().parents[1]
_PACKAGED = "files"
"""The folder of `ops` that a wheel has them in (setup.py copies them there)."""


def resources() -> Path:
    """The folder that holds `config/`, `data/` and `mlflow/agent.py` of this code.

    A wheel carries them inside `ops`; in a checkout, and in a released model, they lie beside it.
    """
    packaged = _OPS / _PACKAGED
    return packaged if packaged.is_dir() else _OPS.parent
