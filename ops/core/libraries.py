"""Libraries whose absence would be read as something else."""

from __future__ import annotations

import importlib.util
import sys

from ops.core.errors import PodiumError
from ops.core.installation import pip_install


def need_mlflow() -> None:
    """Raise `PodiumError` unless the mlflow library is installed.

    Without it `import mlflow` succeeds in the project's folder: Python takes the folder `mlflow/` for a package
    without an `__init__.py`, which has neither a file nor any of the library's functions.
    """
    spec = importlib.util.find_spec("mlflow")
    if spec is None or spec.origin is None:
        raise PodiumError(f"{sys.executable}: the mlflow library is not installed. Run {pip_install('mlflow')}")
