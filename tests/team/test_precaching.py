"""A step of a team's run is killed while it precaches, and a retry continues from the stored results."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from tests.conftest import make_project
from tests.faults.conftest import server  # noqa: F401  (a fixture)
from tests.faults.remote import FaultServer
from tests.team.precaching import BENCHMARKS, WORKERS, engines, precache, prepared
from tests.team.servers import S3, Postgres, Redis

PER_DOMAIN = 6
QUESTIONS = PER_DOMAIN * len(BENCHMARKS) * len(WORKERS)


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_what_a_killed_step_had_is_taken_over_and_no_answer_is_paid_for_twice(
    tmp_path: Path, server: FaultServer, postgres: Postgres, redis_server: Redis, store: S3  # noqa: F811
) -> None:
    project = prepared(make_project(tmp_path / "project"), server.url, store, PER_DOMAIN)
    server.order(latency_s=5.0)
    found = precache(project, tmp_path / "fleet", engines(postgres, redis_server, store), server)
    assert (found.rows, found.pulled) == (QUESTIONS, QUESTIONS), "every answer is there"
    assert found.attempts == [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS]
    assert found.spent.calls == QUESTIONS, "every answer was settled once"
    again = found.came.total() - QUESTIONS
    assert 0 <= again <= found.spent.lost <= again + 2, "asked again was only what the killed step had sent"
