"""`python -m tests.bench.plans`, what `make plans` calls: plans of the GPU recipes, into docs.

Nothing is measured: it is what `podium plan RECIPE --gpus …` prints here.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ops.config import Setup
from ops.core.workspace import Workspace
from ops.grading import configure
from ops.planning.machine import this_machine
from ops.planning.plan import make_plan
from ops.planning.text import report
from pipelines.pages import write_between

MARK = "<!-- made by `make plans` -->"
PAGES = {"planning": ("paper",), "plans": ("paper-code", "paper-3b", "open")}
GPUS = ("2x80", "1x141", "0")


def plans(recipe: str) -> str:
    """A recipe's plan for each of `GPUS`, each behind its command."""
    return "\n\n".join(_folded(recipe, gpus) for gpus in GPUS)


def _folded(recipe: str, gpus: str) -> str:
    workspace = Workspace.find()
    setup = Setup.read(workspace, recipe)
    configure(setup.recipe.grading, workspace.root)
    text = report(make_plan(setup, this_machine(workspace, gpus)))
    command = f"podium plan {recipe} --gpus {gpus}"
    return f"<details><summary><code>{command}</code></summary>\n\n```\n{text}\n```\n\n</details>"


def main() -> int:
    root = Workspace.find().root
    for page, recipes in PAGES.items():
        write_between(root / Path("docs") / f"{page}.md", MARK, "\n\n".join(map(plans, recipes)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
