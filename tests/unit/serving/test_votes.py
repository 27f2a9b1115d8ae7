"""A served question that several workflows answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from ops.conductor.policy import Completion
from ops.config import Vote, Worker
from ops.core.errors import OverBudget, WorkerUnreachable
from ops.core.messages import Message, Sample
from ops.core.response import Response
from ops.core.usage import Usage
from ops.serving.answer import Answer
from ops.serving.in_thread import EngineThread
from ops.serving.request_budget import RequestBudget
from ops.serving.request_options import RequestError, RequestOptions, make_problem, read_options
from ops.workflow.grammar import Workflow
from tests.serving.script import POOL, Scripted, ask, engine_of

FLOW = Workflow.single(0).render()
OTHER = Workflow.single(1).render()
Said = str | Exception


class Numbered(Scripted):
    """Writes the text with the number of the workflow, and FLOW beyond them."""

    def complete(
        self, prompts: Sequence[Sequence[Message]], *, temperature: float = 0.0, seed: int = 0
    ) -> list[Completion]:
        number = seed - 3 if temperature == 0.5 else 0  # three attempts at the first one
        text = self.completions[number] if number < len(self.completions) else FLOW
        return [Completion(text, True, 100, len(text)) for _ in prompts]


class Serve:
    """Answers one question with the workflows of a writer; the worker's answer depends on the workflow's number."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, engines: ExitStack) -> None:
        self.folder, self.monkeypatch, self.engines = folder, monkeypatch, engines
        self.asked: list[tuple[int, str]] = []

    def __call__(self, said: Sequence[Said], *written: str, seconds: float = 0.0, **settings: Any) -> EngineThread:
        async def complete(
            budget: RequestBudget,
            worker: Worker,
            messages: Sequence[Message],
            *,
            sample: int | Sample = 0,
            **options: Any,
        ) -> Response:
            number = Sample.of(sample).index
            self.asked.append((number, worker.name))
            if number:
                await asyncio.sleep(seconds)
            if isinstance(answer := said[number], Exception):
                raise answer
            return Response(f"\\boxed{{{answer}}}", Usage(10, 5), 0.001, 0.5, "stop")

        self.monkeypatch.setattr(RequestBudget, "complete", complete)
        writer = Numbered(*written or (FLOW,))
        engine = engine_of(self.folder, POOL, writer, "algebraist", "guesser", **settings)
        return self.engines.enter_context(closing(engine))


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    with ExitStack() as engines:
        yield Serve(tmp_path, monkeypatch, engines)


TWO_OF_THREE = Vote(workflows=3, agree=2, temperature=0.5)
ASKED = RequestOptions(grader="math", vote=TWO_OF_THREE)


def elected(engine: EngineThread, vote: Vote = TWO_OF_THREE, **options: Any) -> Answer:
    return ask(engine, grader="math", vote=vote, **options)


@pytest.mark.parametrize(
    ("said", "vote", "right", "ran", "agreed", "latency_s"),
    [
        (("42", "42"), TWO_OF_THREE, "42", 2, 2, 0.5),
        (("41", "42", "42"), TWO_OF_THREE, "42", 3, 2, 1.0),  # the third decides, after the first two
        (("41", "42", "43"), TWO_OF_THREE, "41", 3, 1, 1.0),  # of equals the one given first
        # more than half of five: three, then one
        (("41", "42", "42", "42"), Vote(workflows=5, agree=None, temperature=0.5), "42", 4, 3, 1.0),
    ],
)
def test_the_most_frequent_answer_counts(
    serve: Serve, said: Sequence[str], vote: Vote, right: str, ran: int, agreed: int, latency_s: float
) -> None:
    answer = elected(serve(said), vote)
    account = answer.as_account(texts=True)
    assert (answer.text, answer.status) == (f"\\boxed{{{right}}}", "answered")
    assert account["vote"] == {"workflows": ran, "agreed": agreed}
    assert account["latency_s"] == pytest.approx(latency_s)
    assert (account["calls"], account["cost_usd"]) == (ran, pytest.approx(0.001 * ran))
    assert sorted(serve.asked) == [(number, "algebraist") for number in range(ran)]
    assert account["answer"] == answer.text


def test_the_workflow_that_is_shown_is_the_elected_one(serve: Serve) -> None:
    account = elected(serve(("41", "42", "42"), FLOW, OTHER, OTHER)).as_account(texts=True)
    assert (account["workflow"], [step["worker"] for step in account["steps"]]) == (OTHER, ["guesser"])


def test_an_invalid_workflow_has_no_vote(serve: Serve) -> None:
    answer = elected(serve(("42", "", "42"), FLOW, "I would rather not.", FLOW))
    assert (answer.text, answer.vote and answer.vote[:2]) == ("\\boxed{42}", (3, 2))
    assert [(each.reason, each.then) for each in answer.fallbacks] == [("no_workflow", "kept")]


@pytest.mark.parametrize("error", [OverBudget("the month is spent"), WorkerUnreachable("connection refused")])
def test_a_further_workflow_that_fails_leaves_the_answer_of_the_first(serve: Serve, error: Exception) -> None:
    answer = elected(serve(("42", error, error)))
    assert (answer.text, answer.status, answer.vote and answer.vote[:2]) == ("\\boxed{42}", "answered", (3, 1))
    assert [each.then for each in answer.fallbacks] == ["kept", "kept"]


def test_where_the_first_and_its_fallbacks_fail_another_answers_or_none(serve: Serve) -> None:
    answer = elected(serve((WorkerUnreachable("away"), "42", "42")))
    assert (answer.text, answer.status, answer.vote and answer.vote[:2]) == ("\\boxed{42}", "answered", (3, 2))
    none = elected(serve([WorkerUnreachable("away")] * 3))
    assert (none.text, none.status) == (None, "unreachable") and "away" in none.error
    assert {each.then for each in none.fallbacks} == {"nothing"}


def test_the_deadline_leaves_the_answer_that_is_there(serve: Serve) -> None:
    answer = elected(serve(("42", "43", "43"), seconds=60.0), deadline_s=1.0)
    assert (answer.text, answer.status) == ("\\boxed{42}", "answered")
    assert [(each.reason, each.then) for each in answer.fallbacks] == [("timed_out", "kept")]


def test_a_client_that_leaves_during_the_vote_has_cancelled_its_request(serve: Serve) -> None:
    thread = serve(("42", "43", "43"), seconds=60.0)

    async def leave() -> Answer:
        first = asyncio.Event()
        request = await thread.engine.make_request(make_problem("What?", ASKED), ASKED, lambda _: first.set())
        running = asyncio.create_task(request.run())
        async with asyncio.timeout(30):
            await first.wait()
        await asyncio.sleep(0.3)  # the first workflow has ended by now
        assert request.answer.answer_run is not None
        running.cancel()
        await asyncio.wait([running], timeout=30)
        assert running.cancelled() and asyncio.all_tasks() == {asyncio.current_task()}, "no call goes on"
        return request.answer

    assert thread.run_coroutine(leave()).status == "cancelled"


def test_a_request_votes_as_the_server_says_unless_it_says_otherwise(serve: Serve) -> None:
    engine = serve(("41", "42", "42"), vote=TWO_OF_THREE.model_dump())
    assert ask(engine, grader="math").text == "\\boxed{42}"
    alone = elected(engine, Vote())
    assert alone.text == "\\boxed{41}" and "vote" not in alone.as_account(texts=False)
    assert ask(engine, grader="math", execute=False).status == "not_run"
    anything = ask(engine)
    assert anything.text == "\\boxed{41}" and anything.vote is None, "answers in any form cannot be compared"


def test_the_steps_of_all_workflows_are_reported_before_the_answer(serve: Serve) -> None:
    news = serve(("41", "42", "42")).stream_answer(make_problem("What?", ASKED), ASKED)
    assert [type(item).__name__ for item in news] == ["StepTrace"] * 3 + ["Answer"]


@pytest.mark.parametrize(
    ("vote", "said"),
    [
        ({"workflows": 3, "agree": 4}, r"podium\.vote: .*4 of 3 workflows can never agree"),
        ({"workflows": "3"}, r"podium\.vote\.workflows"),
        ({"workflows": 65}, r"podium\.vote\.workflows"),
        ({"workflows": 3, "temperature": 0}, r"podium\.vote\.temperature"),
        ({"workflow": 3}, r"podium\.vote\.workflow: .*Known keys: workflows, agree, temperature"),
        (3, r"podium\.vote"),
    ],
)
def test_a_wrong_vote_is_refused_with_its_field(vote: object, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        read_options({"vote": vote, "grader": "math"}, "podium")


def test_answers_in_any_form_cannot_vote() -> None:
    vote = {"workflows": 3}
    with pytest.raises(RequestError, match=r"podium\.vote: needs answers that can be compared.*grader text, math"):
        read_options({"vote": vote}, "podium")
    assert read_options({"vote": vote, "choices": ["a", "b"]}, "podium").vote == Vote(workflows=3)
    assert read_options({"vote": {"workflows": 1}}, "podium").vote == Vote()
