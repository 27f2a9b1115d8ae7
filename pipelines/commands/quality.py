"""`python -m ops.quality check | gold`: the guards by hand, on the data that lies there."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from rich.console import Console

from ops.benchmarks.raw import raw_files
from ops.benchmarks.store import read_problems, write_text
from ops.config import Recipe, Setup
from ops.core.errors import PodiumError
from ops.core.workspace import Workspace
from ops.grading import configure, isolation
from ops.quality import QualityReport, stages
from ops.quality.gold import grade_gold
from ops.quality.report import Golds, gold_report
from ops.quality.suite import docs_folder


def main(arguments: list[str] | None = None) -> int:
    """0 when every check passes (or the report is written), 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m ops.quality", description=__doc__)
    parser.add_argument("what", choices=("check", "gold"), help="run every suite, or report all gold answers")
    parser.add_argument("--recipe", default="quickstart", help="a file in config/recipes, without .yaml")
    chosen = parser.parse_args(arguments)
    workspace = Workspace.find()
    try:
        setup = Setup.read(workspace, chosen.recipe)
        configure(setup.recipe.grading, workspace.root)
        return _check(setup) if chosen.what == "check" else _gold(workspace, setup.recipe)
    except PodiumError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _check(setup: Setup) -> int:
    """Every suite whose files are there; the Data Docs page is written as by a run."""
    workspace = setup.workspace
    data, passed = workspace.data, True
    suites: dict[str, tuple[bool, Callable[[], QualityReport]]] = {
        "raw_problems": ((data / "raw").is_dir(), lambda: stages.raw_problems(setup)),
        "raw_problems: gold": ((data / "raw").is_dir(), lambda: stages.raw_gold(setup)),
        "shortlist": ((data / "shortlist.jsonl").is_file(), lambda: stages.shortlist(setup)),
        "worker_responses": (
            (data / "responses").is_dir(),
            lambda: stages.worker_responses(setup),
        ),
        "training_mix": ((data / "training_mix.jsonl").is_file(), lambda: stages.training_mix(setup)),
        "training_mix: gold": ((data / "training_mix.jsonl").is_file(), lambda: stages.training_mix_gold(workspace)),
    }
    for name, (there, run) in suites.items():
        if not there:
            print(f"–  {name}: not materialized")
            continue
        report = run()
        passed = passed and report.success
        print(f"{'✓' if report else '✗'}  {name}: {report.summary}")
    print(f"{docs_folder(workspace) / 'index.html'}")
    return 0 if passed else 1


def _gold(workspace: Workspace, recipe: Recipe) -> int:
    """Grade every gold answer of `data/raw` and write `.podium/gold.md`."""
    sets = {}
    for name in recipe.benchmarks:
        for split, file in raw_files(workspace, recipe, name).items():
            problems = read_problems(file)
            began = time.monotonic()
            sets[f"{name}, {split}"] = Golds(grade_gold(problems), 0, time.monotonic() - began)
    text = gold_report(sets, isolation())
    target = workspace.state / "gold.md"
    write_text(target, f"# Gold answers of the recipe `{recipe.name}`\n\n{text}")
    Console(width=150).print(text, markup=False, highlight=False)
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
