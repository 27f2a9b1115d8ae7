"""`python -m ops.benchmarks`: the DVC stage `raw_problems`; with `--list` the benchmarks as a table."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from ops.benchmarks.prompts import ANSWER_FORMAT
from ops.benchmarks.registry import BENCHMARKS
from ops.config import Setup
from ops.core.errors import PodiumError
from ops.core.workspace import Workspace
from ops.stages.problems import materialize_raw

if TYPE_CHECKING:
    from rich.table import Table


def main(arguments: list[str] | None = None) -> int:
    """Load every benchmark of the recipe into `data/raw`; 1 after an error that the user can mend."""
    parser = argparse.ArgumentParser(prog="python -m ops.benchmarks", description=__doc__)
    parser.add_argument("--recipe", default="quickstart", help="a file in config/recipes, without .yaml")
    parser.add_argument("--seed", type=int, help="replaces the recipe's seed")
    parser.add_argument("--list", action="store_true", help="print what each benchmark is, and load nothing")
    chosen = parser.parse_args(arguments)
    if chosen.list:
        from rich.console import Console

        Console().print(benchmark_table())
        return 0
    workspace = Workspace.find()
    try:
        setup = Setup.read(workspace, chosen.recipe, chosen.seed)
        for name in setup.recipe.benchmarks:
            raw = materialize_raw(setup, name)
            print(f"{name}: {len(raw.train)} to train on, {len(raw.test)} to evaluate on")
            if raw.quarantine:
                print(f"  {raw.quarantined} malformed rows left out: {', '.join(map(str, raw.quarantine))}")
    except PodiumError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def benchmark_table() -> Table:
    """Every benchmark: where it is, its splits, what is asked, how it is graded, licence, citation, cautions."""
    from rich.table import Table

    shown = Table(title="Benchmarks", title_justify="left", show_lines=True)
    shown.add_column("benchmark", no_wrap=True)
    for head in ("hub dataset and splits", "asked and graded", "licence and citation", "cautions"):
        shown.add_column(head, overflow="fold", ratio=1)
    for name, entry in BENCHMARKS.items():
        splits = [
            f"{split}: {part.config or 'default'}/{part.split}, {part.rows:,} problems"
            for split, part in entry.hub.parts.items()
        ]
        asked = f"{entry.asks}. {ANSWER_FORMAT[entry.grader]}\nGrader: {entry.grader}"
        shown.add_row(
            f"{name}\n({'confidential' if entry.confidential else entry.domain})",
            "\n".join([entry.hub.id, *splits, f"read from {entry.hub.read_from}"]),
            asked,
            f"{entry.licence}\n{entry.citation}",
            "\n".join(entry.cautions),
        )
    return shown


if __name__ == "__main__":
    sys.exit(main())
