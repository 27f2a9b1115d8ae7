"""Rounds end for a stated reason, never cost more than allowed, and depend on completions only."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from ops.config import Execution, Prompting, RoundLimits, Worker
from ops.core.errors import OverBudget, WorkerRefused, WorkerUnreachable
from ops.core.messages import Message
from ops.core.problem import Problem
from ops.core.response import Response
from ops.core.usage import Usage
from ops.workflow.answer_rounds import CallBudget, Question, answer_questions
from ops.workflow.cards import WorkerCard
from ops.workflow.grammar import Step, Workflow
from ops.workflow.team import Team
from ops.workflow.trace import QuestionTrace
from tests.builders import Answering, make_problem

OFFERED = [Worker(name=name, model=f"local/{name}") for name in ("zero", "one", "down", "refusing")]
PROMPTING = Prompting(style="compact", few_shots="none")
KEEP = Workflow(())
FIRST = Workflow.single(0, "First.")
SECOND = Workflow.single(1, "Second.")
THIRD = Workflow((Step(0, "Third."), Step(1, "Last.", "all")))


def problem(name: str = "p") -> Problem:
    return make_problem(question=f"What is {name}?")


class Tool:
    """A client that answers with the worker's name and its number of calls."""

    def __init__(self) -> None:
        self.chats: list[list[Message]] = []

    async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0, **_: object) -> Response:
        if worker.name == "down":
            raise WorkerUnreachable("down")
        if worker.name == "refusing":
            raise WorkerRefused("no")
        self.chats.append(list(messages))
        return Response(f"{worker.name} #{len(self.chats)}", Usage(10, 5), 0.25, 2.0, "stop")


def written(text: str | Workflow) -> str:
    return text if isinstance(text, str) else text.render()


class Script:
    """A Conductor that writes prepared texts, and records its prompts."""

    def __init__(self, *texts: str | Workflow) -> None:
        self.texts = texts
        self.prompts: list[list[Message]] = []

    async def __call__(self, prompts: list[list[Message]]) -> list[str]:
        [prompt] = prompts
        self.prompts.append(prompt)
        return [written(self.texts[len(self.prompts) - 1])]


def run(
    *texts: str | Workflow, client: Any = None, prompting: Prompting = PROMPTING, team: Any = None, **limits: Any
) -> tuple[QuestionTrace, Script, Any]:
    """Play one question with these texts of the Conductor; `team` has further settings of the team."""
    script, client = Script(*texts), client or Tool()
    question = Question(problem(), Team(OFFERED, client, prompting, **team or {}))
    [trace] = asyncio.run(
        answer_questions([question], script, RoundLimits(**{"rounds": 5, "calls_ratio": 9.0} | limits))
    )
    return trace, script, client


@pytest.mark.parametrize(
    ("texts", "limits", "stop", "answer", "calls"),
    [
        ((FIRST, KEEP), {}, "kept", "zero #1", 1),
        ((FIRST, SECOND, KEEP), {}, "kept", "one #2", 2),
        ((FIRST,), {"rounds": 0}, "cap", "zero #1", 1),
        ((FIRST, SECOND), {"rounds": 1}, "cap", "one #2", 2),
        ((FIRST, SECOND, THIRD), {"rounds": 2}, "cap", "one #4", 4),
        ((FIRST, FIRST), {}, "loop", "zero #1", 1),
        ((FIRST, SECOND, FIRST), {}, "loop", "one #2", 2),
        ((FIRST, THIRD), {"calls_ratio": 2.0}, "budget", "zero #1", 1),
        ((FIRST, SECOND, KEEP), {"calls_ratio": 2.0}, "kept", "one #2", 2),
        ((FIRST, SECOND, THIRD), {"calls_ratio": 2.0}, "budget", "one #2", 2),
        ((FIRST, "I am content."), {}, "invalid", "zero #1", 1),
        (("I do not know.",), {}, "invalid", None, 0),
        ((KEEP,), {}, "invalid", None, 0),  # there is no answer to keep yet
        ((Workflow.single(2),), {}, "unreachable", None, 0),
        ((FIRST, Workflow.single(2)), {}, "unreachable", "zero #1", 1),
        ((FIRST, Workflow.single(3)), {}, "refused", "zero #1", 1),
    ],
)
def test_rounds_end_for_a_named_reason(texts, limits, stop, answer, calls) -> None:
    trace, script, tool = run(*texts, **limits)
    assert (trace.stop_reason, trace.answer, trace.calls) == (stop, answer, calls)
    assert len(tool.chats) == calls
    assert len(script.prompts) == len(texts) == len(trace.rounds)
    assert trace.is_unscorable == (stop == "unreachable")


def test_steps_that_are_not_run_do_not_count_against_the_budget() -> None:
    pruned = Workflow((Step(0, "Idle."), Step(0, "Idle too."), Step(1, "Alone.")))
    trace, _, _ = run(FIRST, pruned, KEEP, calls_ratio=2.0)
    assert (trace.stop_reason, trace.calls) == ("kept", 2)


def test_a_deadline_in_a_round_is_reported() -> None:
    class Slow(Tool):
        async def complete(
            self, worker: Worker, messages: Sequence[Message], *, sample: int = 0, **_: object
        ) -> Response:
            if worker.name == "one":
                await asyncio.Event().wait()
            return await super().complete(worker, messages, sample=sample)

    trace, *_ = run(FIRST, SECOND, client=Slow(), team={"execution": Execution(deadline_s=0.05)})
    assert (trace.stop_reason, trace.answer, trace.is_unscorable) == ("timed_out", "zero #1", True)


def test_a_recursive_prompt_shows_what_was_written_and_what_came_of_it() -> None:
    _, script, _ = run(FIRST, SECOND, KEEP)
    first, second, third = ("\n".join(message["content"] for message in prompt) for prompt in script.prompts)
    assert "zero #1" not in first
    assert "zero #1" in second
    assert "First." in second
    assert "one #2" in third
    assert "Second." in third
    assert script.prompts[1][: len(script.prompts[0])] == script.prompts[0]


def test_the_next_round_sees_the_previous_answer_where_it_sees_all() -> None:
    _, _, tool = run(FIRST, Workflow((Step(1, "Blind."), Step(0, "Judge.", "all"))), KEEP)
    _, blind, judge = tool.chats
    assert not any("zero #1" in message["content"] for message in blind)
    assert judge[1] == {"role": "assistant", "content": "zero #1"}
    assert "First." in judge[0]["content"]


def test_a_long_previous_answer_is_cut_as_any_response_is() -> None:
    settings, judge = {"execution": Execution(carried_tokens=50)}, Workflow((Step(1, "Judge.", "all"),))
    _, _, client = run(FIRST, judge, client=Answering("word " * 900), team=settings, rounds=1)
    assert "cut: 50 of" in client.asked[1][1][1]["content"]


def test_a_batch_is_written_round_by_round_and_keeps_its_order() -> None:
    problems = [problem(name) for name in ("a", "b", "c")]
    rounds: list[int] = []

    async def write(prompts: list[list[Message]]) -> list[str]:
        rounds.append(len(prompts))
        if len(rounds) == 1:
            return [FIRST.render(), "nothing", FIRST.render()]
        return [written(KEEP if "What is a?" in prompt[0]["content"] else SECOND) for prompt in prompts]

    team = Team(OFFERED, Tool(), PROMPTING)
    traces = asyncio.run(answer_questions([Question(each, team) for each in problems], write, RoundLimits(rounds=2)))
    assert [trace.stop_reason for trace in traces] == ["kept", "invalid", "loop"]
    assert rounds == [3, 2, 1]


def test_a_spent_budget_reaches_the_caller_after_the_calls_in_flight() -> None:
    class Poor(Tool):
        ended = 0

        async def complete(
            self, worker: Worker, messages: Sequence[Message], *, sample: int = 0, **_: object
        ) -> Response:
            if "What is a?" in messages[0]["content"]:
                raise OverBudget("the cap")
            await asyncio.sleep(0.02)
            self.ended += 1
            return await super().complete(worker, messages, sample=sample)

    async def write(prompts: list[list[Message]]) -> list[str]:
        return [FIRST.render()] * len(prompts)

    tool = Poor()
    team = Team(OFFERED, tool, PROMPTING)
    with pytest.raises(OverBudget):
        asyncio.run(answer_questions([Question(problem(name), team) for name in "ab"], write, RoundLimits()))
    assert tool.ended == 1


def test_the_conductor_may_be_shown_less_of_an_answer() -> None:
    talker = Answering("Begin. " + "word " * 900 + "End.")
    trace, script, _ = run(FIRST, KEEP, client=talker, answer_tokens=20)
    shown = script.prompts[1][-1]["content"]
    assert "Begin." in shown
    assert "cut: 20 of" in shown
    assert "End." in shown
    assert len(shown) < 300
    assert trace.answer is not None
    assert trace.answer.count("word") == 900


def test_workers_cards_are_in_the_prompt_of_every_round() -> None:
    cards = [WorkerCard(accuracy={"math": 0.71 - ordinal / 10}, cost_usd=0.002) for ordinal in range(len(OFFERED))]
    prompting = PROMPTING.model_copy(update={"cards": True})
    _, script, _ = run(FIRST, SECOND, KEEP, prompting=prompting, team={"cards": cards})
    assert len(script.prompts) == 3
    assert all(cards[0].describe_briefly() in prompt[0]["content"] for prompt in script.prompts)


def together(
    texts: dict[str, list[Workflow]], limits: RoundLimits, budget: CallBudget | None = None, **more: Any
) -> dict[str, QuestionTrace]:
    """Return problem → its rounds, with all problems in one set; each has its own prepared texts, in order."""
    left = {name: list(own) for name, own in texts.items()}

    async def write(prompts: list[list[Message]]) -> list[str]:
        names = [next(name for name in left if f"What is {name}?" in prompt[0]["content"]) for prompt in prompts]
        return [left[name].pop(0).render() for name in names]

    team = Team(OFFERED, Tool(), PROMPTING)
    questions = [Question(problem(name), team) for name in texts]
    return dict(zip(texts, asyncio.run(answer_questions(questions, write, limits, budget=budget, **more)), strict=True))


def test_the_calls_of_a_set_of_questions_are_bounded_in_total() -> None:
    limits = RoundLimits(rounds=1, calls_ratio=2.0)
    wide = Workflow((Step(0, "One."), Step(1, "Two.", "all"), Step(0, "Three.", "all")))
    alone = together({"a": [FIRST, wide]}, limits)
    assert alone["a"].stop_reason == "budget" and alone["a"].calls == 1
    # Two other problems keep their answers, and leave it the calls that they do not make.
    keep = [FIRST, KEEP]
    made = together({"a": [FIRST, wide], "b": keep, "c": keep}, limits)
    assert {name: rounds.stop_reason for name, rounds in made.items()} == {"a": "cap", "b": "kept", "c": "kept"}
    assert sum(rounds.calls for rounds in made.values()) == 6 == 2 * 3


def test_with_too_few_calls_the_same_questions_continue_each_time() -> None:
    texts = {name: [FIRST, THIRD] for name in "abcdef"}
    ends = [[trace.stop_reason for trace in together(texts, RoundLimits()).values()] for _ in range(2)]
    assert ends[0] == ends[1]
    assert sorted(ends[0]) == ["budget"] * 3 + ["cap"] * 3  # six calls are left, and each problem would make two
    assert sum(trace.calls for trace in together(texts, RoundLimits()).values()) == 12


def test_sets_can_share_a_budget() -> None:
    budget, limits = CallBudget(2.0), RoundLimits()
    together({"a": [FIRST, KEEP]}, limits, budget)
    assert together({"b": [FIRST, THIRD]}, limits, budget)["b"].stop_reason == "cap"
    assert together({"c": [FIRST, THIRD]}, limits, budget)["c"].stop_reason == "budget"


def test_a_prompt_without_room_for_a_completion_leaves_the_answer() -> None:
    texts = {name: [FIRST, SECOND] for name in "ab"}
    made = together(texts, RoundLimits(), has_room=lambda prompt: "What is a?" not in prompt[0]["content"])
    assert {name: rounds.stop_reason for name, rounds in made.items()} == {"a": "no_room", "b": "cap"}
    assert made["a"].answer is not None and made["a"].calls == 1


def test_the_row_of_all_rounds_is_of_the_answer_that_stands_with_everything_that_it_took() -> None:
    trace, _, _ = run(FIRST, THIRD, KEEP)
    assert (trace.calls, trace.tokens, trace.cost_usd, trace.latency_s) == (3, 45, 0.75, 6.0)
    assert [round_.trace is not None for round_ in trace.rounds] == [True, True, False]
    row = trace.to_row()
    assert (row["workflow"], row["status"], row["stop"]) == (THIRD.render(), "answered", "kept")
    assert (row["calls"], row["cost_usd"], row["latency_s"], len(row["rounds"])) == (3, 0.75, 6.0, 2)
    assert trace.workflow == THIRD and trace.status == "answered" and trace.error == ""
    failed, _, _ = run(FIRST, Workflow.single(3))
    assert (failed.workflow, failed.status, failed.to_row()["answer"]) == (FIRST, "answered", "zero #1")
