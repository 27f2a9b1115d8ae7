"""A study's stored rows are reused, and refusals and starts precede the first call."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.config import Adaptive, Setup
from ops.core.errors import DataError, PodiumError
from ops.core.workspace import Workspace
from ops.evaluation.stored_studies import StudyInputs
from ops.results.outcome_rows import OutcomeRow
from ops.results.table import iterate_records
from ops.stages.study_context import StudyContext, find_finished_run, make_rows_once, train_on_subsets, train_policy
from ops.training.cold_start.base_policy import base_policy_folder
from ops.training.run.training_run import RESULT_FILE, RunPlan, RunResult
from tests.serving.script import card_of

ORIGIN = {"policy": "a", "pool": "b"}


@pytest.fixture
def setup(project: Workspace) -> Setup:
    return Setup.read(project, "quickstart")


def row(unscorable: bool) -> OutcomeRow:
    return OutcomeRow(
        "math500", "1", 0, "math", 0, True, "", "answered", 1, (), 0, 0.0, 0.0, "", "", unscorable
    )  # fmt: skip


def result(steps: int) -> RunResult:
    return RunResult(
        steps=steps, reward_before=0, reward_after=0, window=1, rollouts=1, live_calls=3, cached_calls=0,
        rollouts_usd=0, seconds=1,
    )  # fmt: skip


def test_rows_are_made_once_and_those_of_unreachable_workers_again(setup: Setup) -> None:
    calls: list[bool] = []

    def make(unscorable: bool) -> list[OutcomeRow]:
        calls.append(unscorable)
        return [row(unscorable)]

    assert [
        each.unscorable for each in iterate_records(make_rows_once(setup, "parts", ORIGIN, lambda: make(True)))
    ] == [True]
    assert [
        each.unscorable for each in iterate_records(make_rows_once(setup, "parts", ORIGIN, lambda: make(False)))
    ] == [False]
    assert list(iterate_records(make_rows_once(setup, "parts", ORIGIN, lambda: make(True)))) == [row(False)]
    assert calls == [True, False]
    make_rows_once(setup, "parts", ORIGIN | {"pool": "c"}, lambda: make(False))
    assert len(calls) == 3


def test_begin_is_called_once_and_only_before_new_work(setup: Setup, tmp_path: Path) -> None:
    ended = result(1)
    runs_trained: list[Path] = []
    began: list[str] = []

    def train(run: Path) -> RunResult:
        runs_trained.append(run)
        return ended

    making = StudyContext(train, on_begin=lambda: began.append("now"))
    (tmp_path / "done").mkdir()
    (tmp_path / "done" / RESULT_FILE).write_text(ended.model_dump_json(), encoding="utf-8")
    runs = {"conductor": tmp_path / "done", "recursive_conductor": tmp_path / "new"}
    lab = StudyInputs(setup, runs, tmp_path)
    assert find_finished_run(lab, "conductor") == find_finished_run(lab, "adaptive_conductor") == tmp_path / "done"
    with pytest.raises(DataError, match=r"has not been trained with its present settings.*podium run quickstart"):
        find_finished_run(lab, "recursive_conductor")
    assert began == runs_trained == []
    making.train(tmp_path / "new")
    making.open_client(setup, "experiment")
    assert runs_trained == [tmp_path / "new"] and began == ["now"]
    assert (making.results, len(making.clients)) == ([ended], 1)

    def refuse() -> None:
        raise PodiumError("no key")

    refused = StudyContext(train, on_begin=refuse)
    for _ in range(2):  # a refusal does not count as a start
        with pytest.raises(PodiumError, match="no key"):
            refused.train(tmp_path / "other")
    assert runs_trained == [tmp_path / "new"]


def test_a_training_and_its_next_stage_are_done_once(setup: Setup) -> None:
    (setup.workspace.data / "training_mix.jsonl").write_text("", encoding="utf-8")
    card_of(setup.pool).write(base_policy_folder(setup))  # an existing cold start is not made again
    shown: list[tuple[int, int, str]] = []

    def train(run: Path) -> RunResult:
        card_of(setup.pool).write(run / "policy")
        (run / RESULT_FILE).write_text(result(3).model_dump_json(), encoding="utf-8")
        making.report(1, 2, run.name)
        return result(3)

    making = StudyContext(train, lambda *progress: shown.append(progress))
    first = train_policy(setup, None, making)
    further = train_on_subsets(setup, first, Adaptive(steps=7), None, making)
    assert train_policy(setup, None, making) == first != further
    assert train_on_subsets(setup, first, Adaptive(steps=7), None, making) == further
    assert len(making.results) == 2 and shown == [(1, 2, first.name), (1, 2, further.name)]
    plan = RunPlan.read(further)
    assert plan.base_policy == first / "policy" and plan.adaptive is not None and plan.adaptive.steps == 7
    StudyContext(train).report(1, 1, "nobody listens")
    assert len(shown) == 2
