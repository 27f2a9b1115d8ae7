"""Run benchmarks with `python -m tests.bench [NAME …]` and write
`.podium/bench.json`; exit code 1 if a bound is exceeded.

With PODIUM_BENCH_SMALL=1 every benchmark runs at a small size, and no bound is checked.
"""

from __future__ import annotations

import sys

from ops.core.workspace import Workspace
from ops.training.run.processes import silence
from tests.bench.row import SMALL, Row, report


def main() -> int:
    silence()
    from tests.bench import (
        cache,
        client,
        curation,
        decoder,
        evaluation,
        executor,
        faults,
        grading,
        grammar,
        grpo,
        summary,
        waiting,
    )

    modules = (client, faults, executor, cache, grpo, grammar, curation, grading, summary, evaluation, decoder, waiting)
    benchmarks = {module.__name__.rpartition(".")[2]: module.rows for module in modules}
    names = sys.argv[1:] or list(benchmarks)
    if unknown := set(names) - set(benchmarks):
        sys.exit(f"unknown benchmark {', '.join(sorted(unknown))}; there are: {', '.join(benchmarks)}")
    rows: list[Row] = []
    for name in names:
        print(f"running {name} …", flush=True)
        rows += benchmarks[name]()
    file = Workspace.find().state / "bench.json"
    held = report(rows, file)
    print(f"written to {file.relative_to(Workspace.find().root)}")
    return 0 if held or SMALL else 1


if __name__ == "__main__":
    sys.exit(main())
