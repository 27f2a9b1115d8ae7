"""A user's question becomes a problem, and a Conductor's workflow for it an answer with its trace."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from ops.conductor.policy import PolicyCard
from ops.config import Pool, Prompting, RoundLimits, load_pool
from ops.core.errors import DataError, OverBudget
from ops.core.response import Message
from ops.core.workspace import Workspace
from ops.release.serving import ATTEMPTS, NoWorkflowError, Service, in_thread, question
from ops.workflow.grammar import Step, Workflow

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = Workflow((Step(0, "Compute."), Step(0, "Check it.", "all")))


class Scripted:
    """Writes its completions one after the other."""

    def __init__(self, *completions: str) -> None:
        self.completions = list(completions)
        self.temperatures: list[float] = []

    def write(
        self,
        prompts: Sequence[Sequence[Message]],
        *,
        temperature: float = 0.0,
        seed: int = 0,
        max_tokens: int | None = None,
    ) -> list[str]:
        self.temperatures.append(temperature)
        return [self.completions.pop(0) for _ in prompts]


@pytest.fixture
def pool() -> Pool:
    return load_pool(ROOT / "config", "quickstart")


def service(pool: Pool, workspace: Path, *completions: str, rounds: RoundLimits | None = None) -> Service:
    card = PolicyCard(
        recipe="test",
        pool=pool,
        offered=("algebraist", "guesser"),
        prompting=Prompting(style="compact", few_shots="none"),
        max_completion_tokens=64,
        rounds=rounds,
    )
    return Service(Scripted(*completions), card, pool, Workspace(workspace))


def test_a_plain_question() -> None:
    problem = question("  What is the density of iron? ")
    assert (problem.question, problem.grader, problem.choices, problem.answer) == (
        "What is the density of iron?",
        "text",
        (),
        "",
    )


def test_choices_make_it_a_choice_question() -> None:
    assert question("Which?", {"choices": ["this", "that"]}).grader == "choice"
    assert question("Which?", {"choices": ["this", "that"], "grader": "math"}).grader == "math"


@pytest.mark.parametrize(
    ("text", "inputs", "field"),
    [
        (" \n", {}, "input"),
        ("Which?", {"grader": "essay"}, r"custom_inputs\.grader"),
        ("Which?", {"grader": ["text"]}, r"custom_inputs\.grader"),
        ("Which?", {"choices": "this"}, r"custom_inputs\.choices"),
        ("Which?", {"choices": [1, 2]}, r"custom_inputs\.choices"),
        ("Which?", {"choices": 3}, r"custom_inputs\.choices"),
    ],
)
def test_what_cannot_be_asked(text: str, inputs: dict[str, object], field: str) -> None:
    with pytest.raises(DataError, match=field):
        question(text, inputs)


def test_an_answer_comes_with_its_workflow_steps_and_cost(pool: Pool, tmp_path: Path) -> None:
    serving = service(pool, tmp_path, WORKFLOW.render())
    served = serving.execute(serving.write(question(r"What is $6 \cdot 7$?")), cap_usd=1.0)
    outputs = served.as_outputs()
    assert "42" in (served.trace.answer or "")
    assert (outputs["workflow"], outputs["status"], outputs["attempts"]) == (WORKFLOW.render(), "answered", 1)
    assert [(step["worker"], step["sees"]) for step in outputs["steps"]] == [
        ("algebraist", []),
        ("algebraist", [0]),
    ]
    assert outputs["cost_usd"] > 0 and outputs["cached"] == 0


def test_the_second_time_it_is_free(pool: Pool, tmp_path: Path) -> None:
    serving = service(pool, tmp_path, WORKFLOW.render(), WORKFLOW.render())
    for cached in (0, 2):
        served = serving.execute(serving.write(question(r"What is $6 \cdot 7$?")), cap_usd=1.0)
        assert served.trace.cached == cached


def test_a_question_may_not_cost_more_than_its_cap(pool: Pool, tmp_path: Path) -> None:
    serving = service(pool, tmp_path, WORKFLOW.render())
    with pytest.raises(OverBudget):
        serving.execute(serving.write(question("What is $1 + 1$?")), cap_usd=1e-9)


def test_an_unreadable_completion_is_tried_again_with_sampling(pool: Pool, tmp_path: Path) -> None:
    serving = service(pool, tmp_path, "I would rather not.", WORKFLOW.render())
    written = serving.write(question("What is $1 + 1$?"))
    assert written.attempts == 2
    assert serving.conductor.temperatures == [0.0, 0.7]  # type: ignore[attr-defined]


def test_a_conductor_that_writes_no_workflow_is_an_error(pool: Pool, tmp_path: Path) -> None:
    with pytest.raises(NoWorkflowError, match=f"in {ATTEMPTS} attempts"):
        service(pool, tmp_path, *["no"] * ATTEMPTS).write(question("What is $1 + 1$?"))


def test_a_policy_whose_worker_left_the_pool_is_not_served(pool: Pool, tmp_path: Path) -> None:
    from ops.config import resolved

    card = PolicyCard(recipe="test", pool=pool, offered=pool.names, prompting=Prompting(), max_completion_tokens=64)
    card.write(tmp_path)
    smaller = pool.model_copy(update={"workers": pool.workers[1:]})
    (tmp_path / "pool.yaml").write_text(resolved(smaller), encoding="utf-8")
    with pytest.raises(DataError, match=pool.names[0]):
        Service.load(tmp_path, tmp_path / "pool.yaml", Workspace(tmp_path))


def test_serving_works_inside_a_running_event_loop() -> None:
    async def inner() -> int:
        await asyncio.sleep(0)
        return 42

    async def outer() -> int:
        return in_thread(inner())

    assert asyncio.run(outer()) == 42


def test_a_policy_that_was_trained_in_rounds_goes_on_within_its_cards_limits(pool: Pool, tmp_path: Path) -> None:
    first, again = Workflow.single(1).render(), Workflow((Step(0, "Compute."),)).render()
    serving = service(pool, tmp_path, first, again, rounds=RoundLimits(rounds=1))
    served = serving.execute(serving.write(question(r"What is $6 \cdot 7$?")), cap_usd=1.0)
    outputs = served.as_outputs()
    assert "42" in (served.trace.answer or "")
    assert (outputs["workflow"], outputs["stop"], outputs["calls"]) == (again, "cap", 2)
    assert [step["worker"] for step in outputs["steps"]] == ["algebraist"]
    assert outputs["cost_usd"] == sum(each["cost_usd"] for each in outputs["rounds"]) > 0


def test_the_calls_of_all_questions_of_a_service_are_bounded_together(pool: Pool, tmp_path: Path) -> None:
    keep, first = Workflow(()).render(), Workflow.single(1).render()
    serving = service(pool, tmp_path, first, keep, first, WORKFLOW.render(), first, WORKFLOW.render(),
                      rounds=RoundLimits(rounds=1, calls_ratio=2.0))  # fmt: skip
    stops = []
    for number in range(3):
        served = serving.execute(serving.write(question(f"What is $6 \\cdot {number}$?")), cap_usd=1.0)
        stops.append(served.as_outputs()["stop"])
    assert stops == ["kept", "cap", "budget"]  # the first left the second what it did not take


def test_a_policy_that_was_not_is_asked_once(pool: Pool, tmp_path: Path) -> None:
    serving = service(pool, tmp_path, Workflow.single(1).render())
    served = serving.execute(serving.write(question(r"What is $6 \cdot 7$?")), cap_usd=1.0)
    assert "rounds" not in served.as_outputs() and served.trace.calls == 1
