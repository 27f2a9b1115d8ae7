"""From a question to an answer: its workflow, budget, deadline and workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ops.config import Execution, Pool, RoundLimits, load_pool
from ops.core.errors import DataError
from ops.serving.answer import Answer
from ops.serving.in_thread import EngineThread
from ops.serving.loaded import LoadedVersion
from ops.serving.request_budget import RequestBudget
from ops.serving.request_options import QuestionTooLongError, RequestError, RequestOptions, question
from ops.serving.strengths import Strengths
from ops.workflow.grammar import Step, Workflow
from tests.serving.script import Scripted, card_of, engine_of

ROOT = Path(__file__).resolve().parents[3]
WORKFLOW = Workflow((Step(0, "Compute."), Step(0, "Check it.", "all")))
SIX_BY_SEVEN = r"What is $6 \cdot 7$?"
Serve = Callable[..., EngineThread]


@pytest.fixture(scope="module")
def pool() -> Pool:
    return load_pool(ROOT / "config", "quickstart")


@pytest.fixture
def serve(pool: Pool, tmp_path: Path) -> Iterator[Serve]:
    engines: list[EngineThread] = []

    def start(writer: Scripted, **settings: object) -> EngineThread:
        engines.append(engine_of(tmp_path, pool, writer, "algebraist", "guesser", **settings))  # type: ignore[arg-type]
        return engines[-1]

    yield start
    for engine in engines:
        engine.close()


def test_an_answer_comes_with_its_workflow_steps_and_cost(serve: Serve) -> None:
    answer = serve(Scripted(WORKFLOW.render())).ask(question(SIX_BY_SEVEN, RequestOptions()), RequestOptions())
    account = answer.account(texts=True)
    assert "42" in (answer.text or "")
    assert (account["workflow"], account["status"], account["attempts"]) == (WORKFLOW.render(), "answered", 1)
    assert [(step["worker"], step["sees"]) for step in account["steps"]] == [("algebraist", []), ("algebraist", [0])]
    assert account["cost_usd"] == account["paid_usd"] > 0
    assert (account["cached"], account["fallbacks"]) == (0, [])
    assert not {"workflow", "steps", "answer"} & answer.account(texts=False).keys()


def test_the_second_time_it_is_free(serve: Serve) -> None:
    engine = serve(Scripted(WORKFLOW.render()))
    first, second = (engine.ask(question(SIX_BY_SEVEN, RequestOptions()), RequestOptions()) for _ in range(2))
    assert first.paid_usd == first.cost_usd == second.cost_usd > 0
    assert (second.paid_usd, second.account(texts=False)["cached"]) == (0, 2)


def test_a_budget_that_pays_for_no_call_is_named_with_the_cheapest_call(serve: Serve) -> None:
    answer = serve(Scripted(WORKFLOW.render())).ask(
        question("What is $1 + 1$?", RequestOptions()), RequestOptions(budget_usd=1e-9)
    )
    assert (answer.text, answer.status, answer.steps) == (None, "over_budget", [])
    assert "may spend 1e-09 USD (its budget_usd), 0.000000 are spent, and the cheapest call" in answer.error


def test_the_cheapest_call_of_all_workers_and_the_budget_in_force_are_named(serve: Serve) -> None:
    engine = serve(Scripted(WORKFLOW.render()), budget_usd=1e-9)
    answer = engine.ask(question("What is $1 + 1$?", RequestOptions()), RequestOptions(budget_usd=5.0))
    worst = [float(each.error.partition("may cost ")[2].split()[0]) for each in answer.fallbacks]
    assert len(set(worst)) > 1 and f"may cost {min(worst):.6f} USD" in answer.error
    assert "may spend 1e-09 USD (the server's budget_usd)" in answer.error


def test_a_question_beyond_the_policys_prompt_limit_is_refused_before_it_is_written(serve: Serve) -> None:
    writer = Scripted(WORKFLOW.render(), prompt_limit=2_000)
    engine = serve(writer)
    with pytest.raises(QuestionTooLongError, match=r"input: .* more than the 2,000 tokens") as refused:
        engine.ask(question("Why? " * 192_000, RequestOptions()), RequestOptions())
    assert refused.value.where == "input" and writer.prompts == []
    assert engine.ask(question(SIX_BY_SEVEN, RequestOptions()), RequestOptions()).status == "answered"


def test_a_budget_that_does_not_pay_for_the_workflow_pays_for_one_worker(pool: Pool, tmp_path: Path) -> None:
    cheap, costly = pool.worker("guesser"), pool.worker("algebraist").model_copy(update={"max_tokens": 10_000_000})
    both = pool.model_copy(update={"workers": (costly, cheap)})
    engine = engine_of(tmp_path, both, Scripted(WORKFLOW.render()))
    try:
        answer = engine.ask(question("What is $1 + 1$?", RequestOptions()), RequestOptions(budget_usd=0.5))
    finally:
        engine.close()
    assert answer.status == "answered" and [step.worker for step in answer.steps] == ["guesser"]
    assert [(each.reason, each.then) for each in answer.fallbacks] == [
        ("over_budget", "best_worker"), ("over_budget", "best_worker"),
    ]  # fmt: skip


def test_a_months_cap_bounds_all_requests_together(serve: Serve) -> None:
    engine = serve(Scripted(Workflow.single(0).render()), month_usd=0.0101)  # a call may cost 0.01 at worst
    answers = [engine.ask(question(f"What is ${n} + 1$?", RequestOptions()), RequestOptions()) for n in range(60)]
    assert answers[0].status == "answered" and answers[-1].status == "server_budget"
    assert sum(answer.paid_usd for answer in answers) <= 0.0101


def test_an_unreadable_completion_is_tried_again_with_sampling(serve: Serve) -> None:
    writer = Scripted("I would rather not.", WORKFLOW.render())
    answer = serve(writer).ask(question("What is $1 + 1$?", RequestOptions()), RequestOptions())
    assert (answer.attempts, answer.status) == (2, "answered")
    assert writer.temperatures == [0.0, 0.7]


def test_without_a_workflow_the_best_worker_is_asked_alone_and_the_answer_says_so(serve: Serve) -> None:
    measured = Strengths({"algebraist": {"math": 0.9, "rlpr": 0.1}, "guesser": {"math": 0.2, "rlpr": 0.3}})
    engine = serve(Scripted("no"), strengths=measured)
    chosen = []
    for grader in ("math", "text"):
        options = RequestOptions.model_validate({"grader": grader})
        answer = engine.ask(question(SIX_BY_SEVEN, options), options)
        assert answer.status == "answered" and answer.attempts == 3
        [fallback] = answer.fallbacks
        assert (fallback.reason, fallback.then) == ("no_workflow", "best_worker")
        chosen.append(fallback.by)
    assert chosen == ["algebraist, by profile", "guesser, by profile"]


def test_a_workflow_that_is_only_to_be_written_calls_no_worker(serve: Serve) -> None:
    engine = serve(Scripted(WORKFLOW.render()))
    answer = engine.ask(question(SIX_BY_SEVEN, RequestOptions()), RequestOptions(execute=False))
    assert (answer.text, answer.status, answer.steps) == (WORKFLOW.render(), "not_run", [])
    none = serve(Scripted("no")).ask(question(SIX_BY_SEVEN, RequestOptions()), RequestOptions(execute=False))
    assert (none.text, none.status) == (None, "no_workflow") and "no_assignment" in none.error


def test_json_that_no_worker_answers_with_is_a_named_failure(serve: Serve) -> None:
    options = RequestOptions(response_format={"type": "json_object"})
    answer = serve(Scripted(WORKFLOW.render())).ask(question(SIX_BY_SEVEN, options), options)
    assert (answer.text, answer.status) == (None, "malformed")
    assert "the response is not the JSON asked for" in answer.error
    first = answer.runs[0].traces[0]
    assert [step.status for step in first.steps] == ["ok", "malformed"], "an earlier step answers in any form"


def test_a_forbidden_worker_is_not_on_offer_and_not_asked(serve: Serve) -> None:
    writer = Scripted(WORKFLOW.render())  # the workflow always uses the algebraist
    options = RequestOptions(forbidden=("algebraist",))
    answer = serve(writer).ask(question(SIX_BY_SEVEN, options), options)
    assert {step.worker for step in answer.steps} == {"guesser"}
    assert [(each.reason, each.by) for each in answer.fallbacks] == [("no_workflow", "guesser, by price")]
    assert all(prompt.endswith("Models: 1") for prompt in writer.prompts)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (RequestOptions(forbidden=("algebrist",)), r"podium\.forbidden: names 'algebrist'.*algebraist, guesser"),
        (RequestOptions(allowed=("scholar",)), r"podium\.allowed: names 'scholar'"),
        (RequestOptions(forbidden=("algebraist", "guesser")), "leaves no worker"),
    ],
)
def test_options_that_leave_no_worker_are_refused(serve: Serve, options: RequestOptions, problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        serve(Scripted(WORKFLOW.render())).ask(question(SIX_BY_SEVEN, options), options)


def test_the_preference_for_cost_offers_the_cheaper_half(serve: Serve) -> None:
    writer = Scripted(Workflow.single(1).render())
    engine = serve(writer, strengths=Strengths(cost_usd={"algebraist": 0.002, "guesser": 0.001}))
    options = RequestOptions(preference="cost")
    answer = engine.ask(question(SIX_BY_SEVEN, options), options)
    assert [step.worker for step in answer.steps] == ["guesser"] and writer.prompts[0].endswith("Models: 1")


def test_a_policy_that_was_trained_in_rounds_goes_on_within_its_cards_limits(serve: Serve) -> None:
    first, again = Workflow.single(1).render(), Workflow((Step(0, "Compute."),)).render()
    engine = serve(Scripted(first, again), rounds=RoundLimits(rounds=1))
    answer = engine.ask(question(SIX_BY_SEVEN, RequestOptions()), RequestOptions())
    account = answer.account(texts=True)
    assert "42" in (answer.text or "")
    assert (account["workflow"], account["stop"], account["calls"]) == (again, "cap", 2)
    assert [step["worker"] for step in account["steps"]] == ["algebraist"]
    assert account["cost_usd"] == sum(each["cost_usd"] for each in account["rounds"]) > 0


@pytest.mark.parametrize("rounds", [None, RoundLimits(rounds=1)], ids=["one workflow", "rounds"])
def test_an_execution_beyond_its_deadline_is_a_fallback(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, rounds: RoundLimits | None
) -> None:
    real = RequestBudget.complete

    async def late(self: RequestBudget, *call: Any, **given: Any) -> Any:
        await asyncio.sleep(60)  # cancelled at the deadline
        return await real(self, *call, **given)

    monkeypatch.setattr(RequestBudget, "complete", late)
    engine = serve(Scripted(WORKFLOW.render()), rounds=rounds, execution=Execution(deadline_s=0.05))
    answer = engine.ask(question(SIX_BY_SEVEN, RequestOptions()), RequestOptions())
    assert (answer.text, answer.status) == (None, "timed_out")
    assert answer.fallbacks[0].reason == "timed_out" and "the deadline passed" in answer.fallbacks[0].error


def test_the_calls_of_all_questions_of_a_version_are_bounded_together(serve: Serve) -> None:
    keep, first = Workflow(()).render(), Workflow.single(1).render()
    writer = Scripted(first, keep, first, WORKFLOW.render(), first, WORKFLOW.render())
    engine = serve(writer, rounds=RoundLimits(rounds=1, calls_ratio=2.0))
    stops = [
        engine.ask(question(f"What is $6 \\cdot {n}$?", RequestOptions()), RequestOptions()).account(texts=False)[
            "stop"
        ]
        for n in range(3)
    ]
    assert stops == ["kept", "cap", "budget"]  # the first left its unused part to the second


def test_questions_that_come_together_are_written_for_together(serve: Serve) -> None:
    writer = Scripted(WORKFLOW.render(), seconds=0.2)
    engine = serve(writer, batch=32)
    with ThreadPoolExecutor(40) as threads:
        asked = [question(f"What is ${n} + {n}$?", RequestOptions()) for n in range(40)]
        answers = list(threads.map(lambda problem: engine.ask(problem, RequestOptions()), asked))
    assert {answer.status for answer in answers} == {"answered"}
    assert sum(writer.batches) == 40 and len(writer.batches) <= 10 and max(writer.batches) <= 32


def test_a_pool_may_have_fewer_workers_than_the_policy_knows(pool: Pool, tmp_path: Path) -> None:
    smaller = pool.model_copy(update={"workers": (pool.worker("guesser"), pool.worker("librarian"))})
    writer = Scripted(Workflow.single(1).render())
    engine = engine_of(tmp_path, smaller, writer, "algebraist", "guesser", trained_on=pool)
    try:
        answer = engine.ask(question(SIX_BY_SEVEN, RequestOptions()), RequestOptions())
    finally:
        engine.close()
    assert [step.worker for step in answer.steps] == ["guesser"] and writer.prompts[0].endswith("Models: 1")
    with pytest.raises(DataError, match="none of the workers"):
        engine_of(tmp_path, smaller, writer, "algebraist", "scholar", trained_on=pool)


def test_a_request_that_waited_while_the_version_changed_is_answered_by_the_new_one(pool: Pool, serve: Serve) -> None:
    thread = serve(Scripted(WORKFLOW.render()))
    engine, newer = thread.engine, Scripted(Workflow.single(1).render())

    async def change() -> Answer:
        request = await engine.request(question(SIX_BY_SEVEN, RequestOptions()), RequestOptions())
        engine.serve(LoadedVersion.of("2", newer, card_of(pool, "algebraist", "guesser"), pool, engine.settings))
        return await engine.answer(request)

    answer = thread.run(change())
    assert (answer.version, answer.status) == ("2", "answered")
    assert [step.worker for step in answer.steps] == ["guesser"]


def test_steps_are_reported_as_they_end_and_then_the_answer(serve: Serve) -> None:
    news = list(serve(Scripted(WORKFLOW.render())).stream(question(SIX_BY_SEVEN, RequestOptions()), RequestOptions()))
    assert [type(item).__name__ for item in news] == ["StepTrace", "StepTrace", "Answer"]


def test_a_workflow_is_written_once_for_a_question_an_offer_and_a_version(serve: Serve, pool: Pool) -> None:
    writer, newer = Scripted(WORKFLOW.render()), Scripted(Workflow.single(0).render())
    engine = serve(writer)

    def ask(**options: Any) -> str | None:
        chosen = RequestOptions(**options)
        return engine.ask(question(SIX_BY_SEVEN, chosen), chosen).workflow

    assert ask() == ask() == WORKFLOW.render() and writer.batches == [1]
    ask(forbidden=("guesser",))
    ask(forbidden=("guesser",))
    assert len(writer.prompts) == 2, "another offer is another prompt"
    engine.ask(question("What is $6 \\cdot 8$?", RequestOptions()), RequestOptions())
    assert len(writer.prompts) == 3
    card = card_of(pool, "algebraist", "guesser")
    engine.engine.serve(LoadedVersion.of("2", newer, card, pool, engine.engine.settings))
    assert ask() == Workflow.single(0).render() and (len(writer.prompts), len(newer.prompts)) == (3, 1)
