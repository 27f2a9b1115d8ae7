"""A study's stored rows are reused, and refusals and starts precede the first call."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.config import Setup
from ops.core.errors import DataError, PodiumError
from ops.core.workspace import Workspace
from ops.evaluation.rows import OutcomeRow
from ops.evaluation.stored_studies import Lab
from ops.stages.making import Making, finished, rows_once
from ops.training.run.plan import RESULT, RunResult

ORIGIN = {"policy": "a", "pool": "b"}


@pytest.fixture
def setup(project: Workspace) -> Setup:
    return Setup.read(project, "quickstart")


def row(unscorable: bool) -> OutcomeRow:
    return OutcomeRow(
        "math500", "1", 0, "math", 0, True, "", "answered", 1, (), 0, 0.0, 0.0, "", "", unscorable
    )  # fmt: skip


def test_rows_are_made_once_and_those_of_unreachable_workers_again(setup: Setup) -> None:
    calls: list[bool] = []

    def make(unscorable: bool) -> list[OutcomeRow]:
        calls.append(unscorable)
        return [row(unscorable)]

    assert [each.unscorable for each in rows_once(setup, "parts", ORIGIN, lambda: make(True))] == [True]
    assert [each.unscorable for each in rows_once(setup, "parts", ORIGIN, lambda: make(False))] == [False]
    assert rows_once(setup, "parts", ORIGIN, lambda: make(True)) == [row(False)]
    assert calls == [True, False]
    assert rows_once(setup, "parts", ORIGIN | {"pool": "c"}, lambda: make(False)) and len(calls) == 3


def test_begin_is_called_once_and_only_before_new_work(setup: Setup, tmp_path: Path) -> None:
    result = RunResult(
        steps=1, reward_before=0, reward_after=0, window=1, rollouts=1, live_calls=3, cached_calls=0, cost_usd=0,
        seconds=1,
    )  # fmt: skip
    trained: list[Path] = []
    began: list[str] = []

    def train(run: Path) -> RunResult:
        trained.append(run)
        return result

    making = Making(train, begin=lambda: began.append("now"))
    (tmp_path / "done").mkdir()
    (tmp_path / "done" / RESULT).write_text(result.model_dump_json(), encoding="utf-8")
    runs = {"conductor": tmp_path / "done", "recursive_conductor": tmp_path / "new"}
    lab = Lab(setup, runs, tmp_path)
    assert finished(lab, "conductor") == finished(lab, "adaptive_conductor") == tmp_path / "done"
    with pytest.raises(DataError, match=r"has not been trained with its present settings.*podium run quickstart"):
        finished(lab, "recursive_conductor")
    assert began == trained == []
    making.train(tmp_path / "new")
    making.client(setup, "experiment")
    assert trained == [tmp_path / "new"] and began == ["now"]
    assert (making.results, len(making.clients)) == ([result], 1)

    def refuse() -> None:
        raise PodiumError("no key")

    refused = Making(train, begin=refuse)
    for _ in range(2):  # a refusal does not count as a start
        with pytest.raises(PodiumError, match="no key"):
            refused.train(tmp_path / "other")
    assert trained == [tmp_path / "new"]
