"""The embedded source through the registry: every benchmark loads both splits, and its gold answers hold."""

from __future__ import annotations

import pytest

from ops.benchmarks.registry import BENCHMARKS
from ops.config import BenchmarkSource
from ops.core.workspace import Workspace
from ops.quality import HeldOut, check_gold, check_problems
from tests.loading import sound_problems


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_embedded_split_passes_the_checks(name: str, workspace: Workspace) -> None:
    entry, source = BENCHMARKS[name], BenchmarkSource(train=12, test=8)
    test = sound_problems(entry, "test", source, workspace, 5)
    assert len(test) == 8
    assert test == sound_problems(entry, "test", source, workspace, 6)
    problems = [*test]
    if entry.trains:
        train = sound_problems(entry, "train", source, workspace, 5)
        assert len(train) == 12
        assert check_problems(train, held_out=HeldOut(test)).failures == []
        problems += train
    assert {(p.benchmark, p.domain, p.grader) for p in problems} == {(name, entry.domain, entry.grader)}
    gold = check_gold(problems)
    assert (gold.failures, gold.checked, gold.skipped) == ([], len(problems), 0)
