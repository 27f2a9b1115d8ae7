"""From a question to an answer: its workflow, budget, deadline and workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from ops.config import Execution, RoundLimits
from ops.serving.answer import Answer
from ops.serving.in_thread import EngineThread
from ops.serving.loaded_version import LoadedVersion
from ops.serving.request_budget import RequestBudget
from ops.serving.request_options import QuestionTooLongError, RequestError, RequestOptions, make_problem
from ops.serving.worker_strengths import WorkerStrengths
from ops.workflow.grammar import Step, Workflow
from tests.serving.script import POOL, SIX_BY_SEVEN, Scripted, ask, card_of, engine_of

WORKFLOW = Workflow((Step(0, "Compute."), Step(0, "Check it.", "all"))).render()
ALGEBRAIST, GUESSER = (Workflow.single(worker).render() for worker in (0, 1))
Serve = Callable[..., EngineThread]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    with ExitStack() as engines:

        def start(writer: Scripted | str = WORKFLOW, **settings: Any) -> EngineThread:
            scripted = Scripted(writer) if isinstance(writer, str) else writer
            engine = engine_of(tmp_path, POOL, scripted, "algebraist", "guesser", **settings)
            return engines.enter_context(closing(engine))

        yield start


def test_an_answer_comes_with_its_workflow_steps_and_cost(serve: Serve) -> None:
    answer = ask(serve())
    account = answer.as_account(texts=True)
    assert "42" in (answer.text or "")
    assert (account["workflow"], account["status"], account["attempts"]) == (WORKFLOW, "answered", 1)
    assert [(step["worker"], step["sees"]) for step in account["steps"]] == [("algebraist", []), ("algebraist", [0])]
    assert account["cost_usd"] == account["paid_usd"] > 0
    assert (account["cached"], account["fallbacks"]) == (0, [])
    assert not {"workflow", "steps", "answer"} & answer.as_account(texts=False).keys()


def test_the_second_time_it_is_free(serve: Serve) -> None:
    engine = serve()
    first, second = ask(engine), ask(engine)
    assert first.paid_usd == first.cost_usd == second.cost_usd > 0
    assert (second.paid_usd, second.as_account(texts=False)["cached"]) == (0, 2)


def test_a_budget_that_pays_for_no_call_is_named_with_the_cheapest_call(serve: Serve) -> None:
    answer = ask(serve(), "What is $1 + 1$?", budget_usd=1e-9)
    assert (answer.text, answer.status, answer.steps) == (None, "over_budget", [])
    assert "may spend 1e-09 USD (its budget_usd), 0.000000 are spent, and the cheapest call" in answer.error


def test_the_cheapest_call_of_all_workers_and_the_budget_in_force_are_named(serve: Serve) -> None:
    answer = ask(serve(budget_usd=1e-9), "What is $1 + 1$?", budget_usd=5.0)
    worst = [float(each.error.partition("may cost ")[2].split()[0]) for each in answer.fallbacks]
    assert len(set(worst)) > 1 and f"may cost {min(worst):.6f} USD" in answer.error
    assert "may spend 1e-09 USD (the server's budget_usd)" in answer.error


def test_a_question_beyond_the_policys_prompt_limit_is_refused_before_it_is_written(serve: Serve) -> None:
    writer = Scripted(WORKFLOW, prompt_limit=2_000)
    engine = serve(writer)
    with pytest.raises(QuestionTooLongError, match=r"input: .* more than the 2,000 tokens") as refused:
        ask(engine, "Why? " * 192_000)
    assert refused.value.where == "input" and writer.prompts == []
    assert ask(engine).status == "answered"


def test_a_budget_that_does_not_pay_for_the_workflow_pays_for_one_worker(tmp_path: Path) -> None:
    cheap, costly = POOL.worker("guesser"), POOL.worker("algebraist").model_copy(update={"max_tokens": 10_000_000})
    both = POOL.model_copy(update={"workers": (costly, cheap)})
    with closing(engine_of(tmp_path, both, Scripted(WORKFLOW))) as engine:
        answer = ask(engine, "What is $1 + 1$?", budget_usd=0.5)
    assert answer.status == "answered" and [step.worker for step in answer.steps] == ["guesser"]
    assert [(each.reason, each.then) for each in answer.fallbacks] == [("over_budget", "best_worker")] * 2


def test_a_months_cap_bounds_all_requests_together(serve: Serve) -> None:
    engine = serve(ALGEBRAIST, month_usd=0.0101)  # a call may cost 0.01 at worst
    answers = [ask(engine, f"What is ${n} + 1$?") for n in range(60)]
    assert answers[0].status == "answered" and answers[-1].status == "server_budget"
    assert sum(answer.paid_usd for answer in answers) <= 0.0101


def test_an_unreadable_completion_is_tried_again_with_sampling(serve: Serve) -> None:
    writer = Scripted("I would rather not.", WORKFLOW)
    answer = ask(serve(writer), "What is $1 + 1$?")
    assert (answer.attempts, answer.status) == (2, "answered")
    assert writer.temperatures == [0.0, 0.7]


@pytest.mark.parametrize(("grader", "chosen"), [("math", "algebraist"), ("text", "guesser")])
def test_without_a_workflow_the_best_worker_is_asked_alone_and_the_answer_says_so(
    serve: Serve, grader: str, chosen: str
) -> None:
    measured = WorkerStrengths({"algebraist": {"math": 0.9, "rlpr": 0.1}, "guesser": {"math": 0.2, "rlpr": 0.3}})
    answer = ask(serve("no", strengths=measured), grader=grader)
    assert answer.status == "answered" and answer.attempts == 3
    [fallback] = answer.fallbacks
    assert (fallback.reason, fallback.then, fallback.by) == ("no_workflow", "best_worker", f"{chosen}, by profile")


def test_a_workflow_that_is_only_to_be_written_calls_no_worker(serve: Serve) -> None:
    answer = ask(serve(), execute=False)
    assert (answer.text, answer.status, answer.steps) == (WORKFLOW, "not_run", [])
    none = ask(serve("no"), execute=False)
    assert (none.text, none.status) == (None, "no_workflow") and "no_assignment" in none.error


def test_json_that_no_worker_answers_with_is_a_named_failure(serve: Serve) -> None:
    answer = ask(serve(), response_format={"type": "json_object"})
    assert (answer.text, answer.status) == (None, "malformed")
    assert "the response is not the JSON asked for" in answer.error
    first = answer.runs[0].executions[0]
    assert [step.status for step in first.steps] == ["ok", "malformed"], "an earlier step answers in any form"
    assert first.calls == 2, "an answer of another form was paid for, too"


def test_a_forbidden_worker_is_not_on_offer_and_not_asked(serve: Serve) -> None:
    writer = Scripted(WORKFLOW)  # the workflow always uses the algebraist
    answer = ask(serve(writer), forbidden=("algebraist",))
    assert {step.worker for step in answer.steps} == {"guesser"}
    assert [(each.reason, each.by) for each in answer.fallbacks] == [("no_workflow", "guesser, by price")]
    assert all(prompt.endswith("Models: 1") for prompt in writer.prompts)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"forbidden": ("algebrist",)}, r"podium\.forbidden: names 'algebrist'.*algebraist, guesser"),
        ({"allowed": ("scholar",)}, r"podium\.allowed: names 'scholar'"),
        ({"forbidden": ("algebraist", "guesser")}, "leaves no worker"),
    ],
)
def test_options_that_leave_no_worker_are_refused(serve: Serve, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        ask(serve(), **options)


def test_the_preference_for_cost_offers_the_cheaper_half(serve: Serve) -> None:
    writer = Scripted(GUESSER)
    strengths = WorkerStrengths(cost_usd={"algebraist": 0.002, "guesser": 0.001})
    answer = ask(serve(writer, strengths=strengths), preference="cost")
    assert [step.worker for step in answer.steps] == ["guesser"] and writer.prompts[0].endswith("Models: 1")


def test_a_policy_that_was_trained_in_rounds_goes_on_within_its_cards_limits(serve: Serve) -> None:
    again = Workflow((Step(0, "Compute."),)).render()
    answer = ask(serve(Scripted(GUESSER, again), rounds=RoundLimits(rounds=1)))
    account = answer.as_account(texts=True)
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
    answer = ask(serve(rounds=rounds, execution=Execution(deadline_s=0.05)))
    assert (answer.text, answer.status) == (None, "timed_out")
    assert answer.fallbacks[0].reason == "timed_out" and "the deadline passed" in answer.fallbacks[0].error


def test_the_calls_of_all_questions_of_a_version_are_bounded_together(serve: Serve) -> None:
    writer = Scripted(GUESSER, Workflow(()).render(), GUESSER, WORKFLOW, GUESSER, WORKFLOW)
    engine = serve(writer, rounds=RoundLimits(rounds=1, calls_ratio=2.0))
    stops = [ask(engine, f"What is $6 \\cdot {n}$?").as_account(texts=False)["stop"] for n in range(3)]
    assert stops == ["kept", "cap", "budget"]  # the first left its unused part to the second


def test_questions_that_come_together_are_written_for_together(serve: Serve) -> None:
    writer = Scripted(WORKFLOW, seconds=0.2)
    engine = serve(writer, batch=32)
    with ThreadPoolExecutor(40) as threads:
        answers = list(threads.map(lambda n: ask(engine, f"What is ${n} + {n}$?"), range(40)))
    assert {answer.status for answer in answers} == {"answered"}
    assert sum(writer.batches) == 40 and len(writer.batches) <= 10 and max(writer.batches) <= 32


def test_a_pool_may_have_fewer_workers_than_the_policy_knows(tmp_path: Path) -> None:
    smaller = POOL.model_copy(update={"workers": (POOL.worker("guesser"), POOL.worker("librarian"))})
    writer = Scripted(GUESSER)
    with closing(engine_of(tmp_path, smaller, writer, "algebraist", "guesser", trained_on=POOL)) as engine:
        answer = ask(engine)
    assert [step.worker for step in answer.steps] == ["guesser"] and writer.prompts[0].endswith("Models: 1")


def second_version(engine: EngineThread, writer: Scripted) -> LoadedVersion:
    return LoadedVersion.from_parts("2", writer, card_of(POOL, "algebraist", "guesser"), POOL, engine.engine.settings)


def test_a_request_that_waited_while_the_version_changed_is_answered_by_the_new_one(serve: Serve) -> None:
    thread, options = serve(), RequestOptions()
    newer = second_version(thread, Scripted(GUESSER))

    async def change() -> Answer:
        request = await thread.engine.make_request(make_problem(SIX_BY_SEVEN, options), options)
        thread.engine.replace_version(newer)
        with thread.engine.hold_version(request):
            return await request.run()

    answer = thread.run_coroutine(change())
    assert (answer.version, answer.status) == ("2", "answered")
    assert [step.worker for step in answer.steps] == ["guesser"]


def test_steps_are_reported_as_they_end_and_then_the_answer(serve: Serve) -> None:
    news = serve().stream_answer(make_problem(SIX_BY_SEVEN, RequestOptions()), RequestOptions())
    assert [type(item).__name__ for item in news] == ["StepTrace", "StepTrace", "Answer"]


def test_a_workflow_is_written_once_for_a_question_an_offer_and_a_version(serve: Serve) -> None:
    writer, newer = Scripted(WORKFLOW), Scripted(ALGEBRAIST)
    engine = serve(writer)
    assert [ask(engine).workflow for _ in "12"] == [WORKFLOW] * 2 and writer.batches == [1]
    for _ in range(2):
        ask(engine, forbidden=("guesser",))
    assert len(writer.prompts) == 2, "another offer is another prompt"
    ask(engine, "What is $6 \\cdot 8$?")
    assert len(writer.prompts) == 3
    engine.engine.replace_version(second_version(engine, newer))
    assert ask(engine).workflow == ALGEBRAIST and (len(writer.prompts), len(newer.prompts)) == (3, 1)
