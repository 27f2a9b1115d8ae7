"""Learned routers, on questions for which the right worker is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ops.core.response import NO_RESPONSE
from ops.evaluation.baseline import BASELINES, WorkflowBaseline
from ops.evaluation.baselines import mas_router, router_dc
from ops.evaluation.method import Attempt, Method, TrainingData
from tests.unit.evaluation.kinds import SPECIALISTS, Client, Right, accuracy, known, problems, said

ROUTERS = ("knn_router", "router_dc")
MIX, UNSEEN = problems(["fruit", "metal"], 40), problems(["fruit", "metal"], 15, seed=7)
ALIKE: Right = {"a": {"fruit": 0.3}, "b": {"fruit": 0.95}, "c": {"fruit": 0.2}}
NOISY: Right = {name: {"fruit": 0.55} for name in ("a", "b", "c")}


def prepared(name: str, own: TrainingData) -> Method:
    entry = BASELINES[name]
    assert isinstance(entry, WorkflowBaseline)
    return entry.prepare(own)


def workers(method: Method, asked: list) -> list[int]:
    return [branches[0].steps[0].worker for branches in method.branches(asked, 0)]


@pytest.fixture(autouse=True)
def fewer_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train for a tenth of RouterDC's steps, which suffices here."""
    monkeypatch.setattr(router_dc, "STEPS", 100)


@pytest.mark.parametrize("name", ROUTERS)
def test_an_unseen_question_goes_to_the_specialist_of_its_kind(name: str) -> None:
    method = prepared(name, known(MIX, SPECIALISTS))
    assert workers(method, UNSEEN) == [0] * 15 + [1] * 15
    assert accuracy(method, UNSEEN, SPECIALISTS) == 1.0  # the best single worker: one half


@pytest.mark.parametrize("name", ROUTERS)
def test_where_all_questions_are_alike_the_best_single_worker_answers_nearly_all(name: str) -> None:
    method = prepared(name, known(problems(["fruit"], 150), ALIKE))
    routed = workers(method, problems(["fruit"], 40, seed=7))
    assert routed.count(1) >= 36


@pytest.mark.parametrize("name", ROUTERS)
def test_the_same_seed_gives_the_same_routes(name: str) -> None:
    right: Right = {worker: {"fruit": 0.5, "metal": 0.5} for worker in "abcd"}  # nothing to learn: random
    first, again = (workers(prepared(name, known(MIX, right)), UNSEEN) for _ in range(2))
    assert first == again
    assert len(set(first)) > 1


@pytest.mark.parametrize("name", ROUTERS)
def test_three_problems_are_sufficient(name: str) -> None:
    right: Right = {"a": {"fruit": 1.0}, "b": {"fruit": 0.0}, "c": {"fruit": 0.0}}
    asked = problems(["fruit"], 3)
    method = prepared(name, known(asked, right))
    assert workers(method, asked) == [0] * 3
    assert workers(method, UNSEEN[:15]).count(0) >= 12


@pytest.mark.parametrize("name", ROUTERS)
def test_a_worker_without_responses_is_never_chosen(name: str) -> None:
    own = known(MIX, SPECIALISTS)
    gone = [
        replace(row, status="unreachable", response=NO_RESPONSE, score=0.0) if row.worker == "a" else row
        for row in own.responses
    ]
    routed = workers(prepared(name, replace(own, responses=gone)), UNSEEN)
    assert 0 not in routed
    assert routed[15:] == [1] * 15
    with pytest.raises(ValueError, match="no worker has answered"):
        prepared(name, replace(own, responses=gone[:1]))


def test_the_cheaper_of_equally_good_neighbours_answers() -> None:
    own = known(MIX, {"a": {"fruit": 1.0, "metal": 1.0}, "b": {"fruit": 1.0, "metal": 1.0}})
    cheap = [
        replace(row, response=replace(row.response, cost_usd=0.0001)) if row.worker == "b" else row
        for row in own.responses
    ]
    assert set(workers(prepared("knn_router", replace(own, responses=cheap)), UNSEEN)) == {1}


# ── Smoothie ─────────────────────────────────────────────────────────────────


def attempts(right: Right, asked: list) -> list[Attempt]:
    return [Attempt(each, tuple(f"Answer: {said(name, each, right)}" for name in right)) for each in asked]


def test_smoothie_finds_the_worker_whose_answers_others_repeat_by_being_right() -> None:
    right: Right = {"a": {"fruit": 0.4}, "b": {"fruit": 0.4}, "c": {"fruit": 0.9}, "d": {"fruit": 0.4}}
    asked = problems(["fruit"], 40)
    method = prepared("smoothie", known(asked, right))
    assert method.choose(attempts(right, asked)) == [2] * 40
    # All workers are called and paid for.
    assert [len(branches) for branches in method.branches(asked, 0)] == [4] * 40


def test_smoothie_skips_workers_without_an_answer() -> None:
    right: Right = {"a": {"fruit": 0.4}, "b": {"fruit": 0.6}, "c": {"fruit": 0.9}}
    asked = problems(["fruit"], 40)
    first, *others = attempts(right, asked)
    silent = first._replace(answers=(*first.answers[:2], None))
    picked = prepared("smoothie", known(asked, right)).choose([silent, *others])
    assert picked == [1] + [2] * 39
    unanswered = [Attempt(each, (None, None, None)) for each in asked]
    assert prepared("smoothie", known(asked, right)).choose(unanswered) == [0] * 40


def test_its_dependent_form_finds_the_specialist_of_a_kind() -> None:
    right: Right = {
        "a": {"fruit": 0.95, "metal": 0.1}, "b": {"fruit": 0.1, "metal": 0.95},
        "c": {"fruit": 0.5, "metal": 0.5}, "d": {"fruit": 0.5, "metal": 0.5},
    }  # fmt: skip
    own, asked = known(MIX, right), problems(["fruit", "metal"], 40, seed=7)
    assert prepared("smoothie_dependent", own).choose(attempts(right, asked)) == [0] * 40 + [1] * 40
    assert accuracy(prepared("smoothie_dependent", own), asked, right) > 0.85
    assert accuracy(prepared("smoothie", own), asked, right) < 0.7


def test_three_questions_and_three_workers_are_the_least() -> None:
    own = known(MIX[:3], SPECIALISTS)
    for name in ("smoothie", "smoothie_dependent"):
        assert len(prepared(name, own).choose(attempts(SPECIALISTS, MIX[:3]))) == 3
    two: Right = {name: SPECIALISTS[name] for name in ("a", "b")}
    with pytest.raises(ValueError, match="at least three workers, the pool has 2"):
        prepared("smoothie", known(MIX, two))


# ── MasRouter ────────────────────────────────────────────────────────────────


def trained(right: Right, penalty: float = mas_router.COST_PENALTY, kinds: tuple[str, ...] = ("fruit",)) -> Method:
    asked = problems(kinds, 120 // len(kinds))
    return mas_router.train_mas_router(known(asked, right, client=Client(asked, right)), penalty)


def test_it_learns_to_vote_where_a_vote_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mas_router, "LEARNING_ROUNDS", 22)
    method, asked = trained(NOISY), problems(["fruit"], 80, seed=7)
    flows = [branches[0] for branches in method.branches(asked, 0)]
    voting = [flow for flow in flows if flow.steps[-1].subtask == "Take the most common answer."]
    assert len(voting) >= 72
    assert accuracy(method, asked, NOISY) > 0.68  # one worker: 0.55


def test_it_asks_one_worker_where_calls_are_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mas_router, "LEARNING_ROUNDS", 10)
    method = trained(NOISY, penalty=0.5)
    assert {len(branches[0].steps) for branches in method.branches(UNSEEN, 0)} == {1}
    assert method.detail == "single 100%"


def test_it_gives_each_kind_to_its_specialist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mas_router, "LEARNING_ROUNDS", 10)
    assert accuracy(trained(SPECIALISTS, kinds=("fruit", "metal")), UNSEEN, SPECIALISTS) > 0.9


def test_its_calls_are_bounded_and_its_seed_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mas_router, "LEARNING_ROUNDS", 4)
    even: Right = {name: {"fruit": 0.5, "metal": 0.5} for name in "abc"}
    made = []
    for _ in range(2):
        client = Client(MIX, even)
        method = mas_router.train_mas_router(known(MIX, even, client=client))
        made.append([branches[0] for branches in method.branches(UNSEEN, 0)])
        assert (
            0 < client.calls <= 4 * mas_router.QUESTIONS_PER_ROUND * 13
        )  # 1 + 5 + 5 + 5 steps at most, fewer as a rule
    assert made[0] == made[1]


def test_it_takes_three_problems_and_keeps_to_the_most_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mas_router, "LEARNING_ROUNDS", 4)
    own = known(MIX[:3], SPECIALISTS, client=Client(MIX[:3], SPECIALISTS))
    short = replace(own, team=replace(own.team, prompting=own.team.prompting.model_copy(update={"max_steps": 2})))
    flows = [branches[0] for branches in mas_router.train_mas_router(short).branches(UNSEEN, 0)]
    assert max(len(flow.steps) for flow in flows) <= 2
