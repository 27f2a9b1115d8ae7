"""Run benchmarks with `python -m tests.bench [NAME …]` and write `.podium/bench.json`.

Each module has one or more measurements, its `PARTS`. A row is written as soon as it is measured. A part that needs a
program which is absent is skipped by that program's name, and one that fails does not stop the others. The exit code is
1 if a bound is exceeded or a part failed. With PODIUM_BENCH_SMALL=1 every benchmark runs at a small size, and no bound
is checked.
"""

from __future__ import annotations

import sys

from ops.core.workspace import Workspace
from ops.training.run.processes import silence_libraries
from tests.bench.row import SMALL, Report


def main() -> int:
    silence_libraries()
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
        proxy,
        serving,
        summary,
        waiting,
    )

    modules = (
        client, faults, executor, cache, grpo, grammar, curation, grading, summary, evaluation, decoder, waiting,
        serving, proxy,
    )  # fmt: skip
    benchmarks = {module.__name__.rpartition(".")[2]: module.PARTS for module in modules}
    names = sys.argv[1:] or list(benchmarks)
    if unknown := set(names) - set(benchmarks):
        sys.exit(f"unknown benchmark {', '.join(sorted(unknown))}; there are: {', '.join(benchmarks)}")
    report = Report(Workspace.find().state / "bench.json")
    for name in names:
        for part in benchmarks[name]:
            report.run(name, part)
    report.show()
    print(f"written to {report.file.relative_to(Workspace.find().root)}")
    return 0 if report.failed == 0 and (report.holds or SMALL) else 1


if __name__ == "__main__":
    sys.exit(main())
