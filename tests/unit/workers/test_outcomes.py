"""Published outcomes of real models: profiles and forecast of a pool, and replayed and graded responses."""

from __future__ import annotations

from statistics import fmean

import pytest

from ops.curation.signal import group_signals
from ops.precaching.profiles import best_single, ceiling, profile, tallies
from tests.bench.outcomes import MATRIX, matrix_rows, replayed_verdicts

pytestmark = pytest.mark.skipif(not MATRIX.is_file(), reason="needs the published outcomes in ../shared")


@pytest.mark.long
def test_the_pool_of_published_models() -> None:
    rows = matrix_rows()
    workers = {worker.worker: worker.overall for worker in profile(rows)}
    assert len(workers) == 16
    best, [best_of_each] = best_single(rows), ceiling(rows).values()
    assert best.overall.accuracy == max(score.accuracy for score in workers.values())
    assert best.overall.accuracy + best.overall.se < best_of_each.accuracy
    assert {score.n for score in workers.values()} == {348, 349}
    shares = {group: fmean(group_signals(tallies(rows), group).values()) for group in (8, 64)}
    assert 0.2 < shares[8] < shares[64] < 1.0


@pytest.mark.parametrize("count", [10, pytest.param(50, marks=pytest.mark.soak)])
def test_replayed_responses_fail_no_public_test_that_they_passed_when_hidden(count: int) -> None:
    verdicts = replayed_verdicts(every=400 // count)
    assert len(verdicts) == count
    assert [verdict.problem for verdict in verdicts if verdict.hidden and not verdict.public] == []
    assert sum(verdict.hidden for verdict in verdicts) > 0.4 * count
    assert sum(verdict.same_program for verdict in verdicts) == count
