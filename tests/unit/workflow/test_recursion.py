"""Rounds end for a reason that is named, never cost more than allowed, and read completions only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.config import Execution, Prompting, Recursion, Worker
from ops.core.errors import OverBudget, WorkerRefused, WorkerUnreachable
from ops.core.problem import Problem
from ops.core.response import Message, Response
from ops.workflow.execution import Previous, worker_messages
from ops.workflow.grammar import Step, Workflow
from ops.workflow.recursion import (
    RecursiveTrace,
    normalise_per_round,
    recurse,
    recurse_many,
    round_rewards,
)

OFFERED = [Worker(name=name, model=f"local/{name}") for name in ("zero", "one", "down", "refusing")]
PROMPTING = Prompting(style="compact", few_shots="none")
KEEP = Workflow(()).render()
FIRST = Workflow.single(0, "First.")
SECOND = Workflow.single(1, "Second.")
THIRD = Workflow((Step(0, "Third."), Step(1, "Last.", "all")))


def problem(name: str = "p") -> Problem:
    return Problem(name, "math500", "math", "train", f"What is {name}?", "42", "math")


class Tool:
    """Answers with who it is and how often it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[Message]] = []

    async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0) -> Response:
        if worker.name == "down":
            raise WorkerUnreachable("down")
        if worker.name == "refusing":
            raise WorkerRefused("no")
        self.asked.append(list(messages))
        return Response(f"{worker.name} #{len(self.asked)}", 10, 5, 0.25, 2.0, "stop")


class Script:
    """A Conductor that writes what it is told to, and keeps what it was shown."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)
        self.prompts: list[list[Message]] = []

    async def __call__(self, prompt: list[Message]) -> str:
        self.prompts.append(prompt)
        return self.texts[len(self.prompts) - 1]


def run(*texts: str | Workflow, rounds: int = 5, ratio: float = 9.0) -> tuple[RecursiveTrace, Script, Tool]:
    script, tool = Script(*(t if isinstance(t, str) else t.render() for t in texts)), Tool()
    limits = Execution.model_validate({"recursion": {"rounds": rounds, "calls_ratio": ratio}})
    found = asyncio.run(recurse(problem(), script, OFFERED, tool, PROMPTING, settings=limits))
    return found, script, tool


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
        ((FIRST, THIRD), {"ratio": 2.0}, "budget", "zero #1", 1),
        ((FIRST, SECOND, KEEP), {"ratio": 2.0}, "kept", "one #2", 2),
        ((FIRST, SECOND, THIRD), {"ratio": 2.0}, "budget", "one #2", 2),
        ((FIRST, "I am content."), {}, "invalid", "zero #1", 1),
        (("I do not know.",), {}, "invalid", None, 0),
        ((KEEP,), {}, "invalid", None, 0),  # there is nothing to keep yet
        ((Workflow.single(2),), {}, "unreachable", None, 0),
        ((FIRST, Workflow.single(2)), {}, "unreachable", "zero #1", 1),
        ((FIRST, Workflow.single(3)), {}, "refused", "zero #1", 1),
    ],
)
def test_rounds_end_for_a_named_reason(texts, limits, stop, answer, calls) -> None:
    found, script, tool = run(*texts, **limits)
    assert (found.stop, found.answer, found.calls) == (stop, answer, calls)
    assert len(tool.asked) == calls
    assert len(script.prompts) == len(texts) == len(found.rounds)
    assert found.unscorable == (stop == "unreachable")


def test_steps_that_are_not_run_do_not_count_against_the_budget() -> None:
    pruned = Workflow((Step(0, "Idle."), Step(0, "Idle too."), Step(1, "Alone.")))
    found, _, _ = run(FIRST, pruned, KEEP, ratio=2.0)
    assert (found.stop, found.calls) == ("kept", 2)


def test_a_deadline_in_a_round_is_told() -> None:
    class Slow(Tool):
        async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0) -> Response:
            if worker.name == "one":
                await asyncio.Event().wait()
            return await super().complete(worker, messages, sample=sample)

    limits = Execution.model_validate({"deadline_s": 0.05, "recursion": {"rounds": 3}})
    script = Script(FIRST.render(), SECOND.render())
    found = asyncio.run(recurse(problem(), script, OFFERED, Slow(), PROMPTING, settings=limits))
    assert (found.stop, found.answer, found.unscorable) == ("timed_out", "zero #1", True)


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
    _, blind, judge = tool.asked
    assert not any("zero #1" in message["content"] for message in blind)
    assert judge[1] == {"role": "assistant", "content": "zero #1"}
    assert "First." in judge[0]["content"]


def test_a_long_previous_answer_is_cut_as_any_response_is() -> None:
    class Talker(Tool):
        async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0) -> Response:
            response = await super().complete(worker, messages, sample=sample)
            return Response("word " * 900, 1, 900, 0.0, response.latency_s, "stop")

    tool = Talker()
    limits = Execution.model_validate({"carried_tokens": 50, "recursion": {"rounds": 1}})
    script = Script(FIRST.render(), Workflow((Step(1, "Judge.", "all"),)).render())
    asyncio.run(recurse(problem(), script, OFFERED, tool, PROMPTING, settings=limits))
    assert "cut: 50 of" in tool.asked[1][1]["content"]


def test_a_batch_is_written_round_by_round_and_keeps_its_order() -> None:
    problems = [problem(name) for name in ("a", "b", "c")]
    rounds: list[int] = []

    async def write(prompts: list[list[Message]]) -> list[str]:
        rounds.append(len(prompts))
        if len(rounds) == 1:
            return [FIRST.render(), "nothing", FIRST.render()]
        return [KEEP if "What is a?" in prompt[0]["content"] else SECOND.render() for prompt in prompts]

    limits = Execution.model_validate({"recursion": {"rounds": 2}})
    found = asyncio.run(recurse_many(problems, write, OFFERED, Tool(), PROMPTING, settings=limits))
    assert [one.stop for one in found] == ["kept", "invalid", "loop"]
    assert rounds == [3, 2, 1]


def test_a_spent_budget_reaches_the_caller_after_the_calls_in_flight() -> None:
    class Poor(Tool):
        ended = 0

        async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0) -> Response:
            if "What is a?" in messages[0]["content"]:
                raise OverBudget("the cap")
            await asyncio.sleep(0.02)
            self.ended += 1
            return await super().complete(worker, messages, sample=sample)

    async def write(prompts: list[list[Message]]) -> list[str]:
        return [FIRST.render()] * len(prompts)

    tool = Poor()
    with pytest.raises(OverBudget):
        asyncio.run(recurse_many([problem("a"), problem("b")], write, OFFERED, tool, PROMPTING))
    assert tool.ended == 1


def test_the_record_sums_up_its_rounds() -> None:
    found, _, _ = run(FIRST, THIRD, KEEP)
    assert (found.calls, found.tokens, found.cost_usd, found.latency_s) == (3, 45, 0.75, 6.0)
    line = found.as_json()
    row = json.loads(line)
    assert "\n" not in line
    assert row["stop"] == "kept"
    assert [bool(one["trace"]) for one in row["rounds"]] == [True, True, False]
    bare = found.as_json(texts=False)
    for word in ("What is p?", "First.", "zero #1", "Third.", "one #3"):
        assert word in line or word == "What is p?"
        assert word not in bare


@pytest.mark.parametrize("last", [KEEP, FIRST, "prose", Workflow.single(2)])
@pytest.mark.parametrize("ratio", [1.0, 2.0, 3.0, 4.0, 9.0])
def test_a_longer_run_tells_what_tighter_limits_would_have_given(last: Workflow | str, ratio: float) -> None:
    script = (FIRST, SECOND, THIRD, last)
    whole, _, _ = run(*script)
    for cap in range(5):
        bound, _, _ = run(*script, rounds=cap, ratio=ratio)
        seen = whole.under(Recursion(rounds=cap, calls_ratio=ratio))
        assert (seen.stop, seen.answer, seen.calls) == (bound.stop, bound.answer, bound.calls)
        assert [(one.text, one.trace is None) for one in seen.rounds] == [
            (one.text, one.trace is None) for one in bound.rounds
        ]


def test_the_conductor_may_be_shown_less_of_an_answer() -> None:
    class Talker(Tool):
        async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0) -> Response:
            return Response("Begin. " + "word " * 900 + "End.", 1, 900, 0.0, 1.0, "stop")

    limits = Execution.model_validate({"recursion": {"rounds": 1, "answer_tokens": 20}})
    script = Script(FIRST.render(), KEEP)
    found = asyncio.run(recurse(problem(), script, OFFERED, Talker(), PROMPTING, settings=limits))
    shown = script.prompts[1][-1]["content"]
    assert "Begin." in shown
    assert "cut: 20 of" in shown
    assert "End." in shown
    assert len(shown) < 300
    assert found.answer is not None
    assert found.answer.count("word") == 900


def test_a_lone_step_that_sees_all_has_the_previous_round_alone() -> None:
    messages = worker_messages(Workflow((Step(0, "x", "all"),)), 0, "Q", {}, Previous("s", "r"))
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]


# ── for training ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("rewards", "wanted"),
    [
        ([1.0], [1.0]),
        ([1.0, 0.5], [0.25, 0.5]),
        ([0.5, 1.0, 1.0], [0.125, 1.0, 1.0]),
        ([None, 1.0], [None, 1.0]),
        ([1.0, None], [0.25, None]),
        ([], []),
    ],
)
def test_the_first_rounds_reward_is_discounted_when_another_follows(rewards, wanted) -> None:
    assert round_rewards(rewards, 0.25) == wanted


def test_each_round_is_normalised_by_itself() -> None:
    group = [[0.25, 1.0], [0.125, 1.0], [0.25], [0.125, None], [None, 0.5]]
    found = normalise_per_round(group)
    assert found[0][0] == found[2][0] == pytest.approx(1.0)
    assert found[1][0] == found[3][0] == pytest.approx(-1.0)
    assert found[3][1] is None
    assert found[4][0] is None
    assert found[0][1] == pytest.approx(0.7071, abs=1e-3)
    assert found[4][1] == pytest.approx(-1.4142, abs=1e-3)


rewards = st.sampled_from([None, 0.0, 0.125, 0.25, 0.5, 1.0])


@given(st.lists(st.lists(rewards, max_size=3), max_size=12))
@settings(deadline=None)
def test_advantages_are_centred_and_of_unit_spread_or_zero(group: list[list[float | None]]) -> None:
    found = normalise_per_round(group)
    assert [[a is None for a in one] for one in found] == [[r is None for r in one] for one in group]
    for number in range(3):
        column = [one[number] for one in found if len(one) > number and one[number] is not None]
        if column:
            assert sum(column) == pytest.approx(0.0, abs=1e-9)
            assert sum(a * a for a in column) / len(column) == pytest.approx(1.0) or not any(column)
