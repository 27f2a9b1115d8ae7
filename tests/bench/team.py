"""`python -m tests.bench.team [CASE …]`: precaching on one machine of a team, on two, and on two of which one is lost.

The machines are processes of this one, over real Postgres, Redis and S3 servers; workers answer over HTTP after
`LATENCY_S`, and each run pushes what it wrote to DVC's remote. Prints the table that docs/deployment.md shows. Takes a
quarter of an hour.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

from ops.core.workspace import Workspace
from ops.curation.card import markdown_table
from pipelines.home import quiet
from tests.bench.row import Row, report
from tests.conftest import make_project
from tests.faults.remote import FaultServer
from tests.team.precaching import BENCHMARKS, WORKERS, Outcome, engines, precache, prepared
from tests.team.servers import S3, Postgres, Redis

CASES = {"one machine": (1, False), "two": (2, False), "two, one lost": (2, True)}
"""Machines, and whether the second is killed."""
LATENCY_S = 8.0
PER_DOMAIN, CONCURRENCY = 12, 2


def main() -> None:
    """Run the three and print them."""
    quiet()
    logging.getLogger("alembic").setLevel(logging.WARNING)
    postgres = Postgres()
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        redis, store = Redis(folder), S3(folder)
        try:
            for case in sys.argv[1:] or CASES:
                machines, kill = CASES[case]
                print(f"{case} …", flush=True)
                own = folder / re.sub(r"\W+", "-", case)
                own.mkdir()
                with FaultServer(own) as server:
                    project = prepared(make_project(own / "project"), server.url, store, PER_DOMAIN, CONCURRENCY)
                    server.order(latency_s=LATENCY_S)
                    found = engines(postgres, redis, store)
                    outcomes[case] = precache(project, own / "fleet", found, server, machines=machines, kill=kill)
        finally:
            store.stop()
            redis.stop()
            postgres.remove()
    _show(outcomes)
    if {"one machine", "two"} <= outcomes.keys():
        one, two = outcomes["one machine"], outcomes["two"]
        row = Row("precaching on two machines", two.seconds, "on one", one.seconds, 0.85, "s")
        report([row], Workspace.find().state / "bench-team.json")


def _show(outcomes: dict[str, Outcome]) -> None:
    questions = PER_DOMAIN * len(BENCHMARKS) * len(WORKERS)
    head = ("", "seconds", "requests", "settled", "lost", "asked again", "rows", "pulled", "runs", "of them failed")
    rows = []
    for case, found in outcomes.items():
        again = sum(Counter({text: times - len(WORKERS) for text, times in found.came.items()}).values())
        rows.append((
            case, f"{found.seconds:.0f}", found.came.total(), found.spent.calls, found.spent.lost, again, found.rows,
            found.pulled, found.runs, found.failed,
        ))  # fmt: skip
    print(f"\n{markdown_table(head, rows)}\n")
    print(f"{questions} questions, {LATENCY_S:g} s each, {CONCURRENCY} at once by worker; {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
