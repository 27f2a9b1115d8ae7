"""The names and tags by which MLflow's list of runs shows what each run was for.

In MLflow's search box, ``tags.`podium.purpose` = 'fine-tuning'`` selects the runs of one purpose.
"""

from __future__ import annotations

from typing import Literal

Purpose = Literal["training", "fine-tuning", "release", "evaluation", "study"]
"""What a run was for. `fine-tuning` continues from a champion, `study` is any training or evaluation of a study."""
PURPOSE_TAG = "podium.purpose"
"""The tag with the purpose of a run."""


def name_run(purpose: Purpose, *parts: str) -> str:
    """Return the name of a run, which begins with its purpose, such as `training quickstart-e67b34744837`."""
    return " ".join([purpose, *(part for part in parts if part)])
