"""Steps that ask the same worker the same question are different samples."""

from __future__ import annotations

import asyncio

from ops.config import Worker
from ops.core.response import Sample
from ops.workflow.execution import execute
from ops.workflow.grammar import Step, Workflow
from ops.workflow.team import Team
from tests.builders import Answering

WORKERS = (Worker(name="a", model="local/solver"), Worker(name="b", model="local/scholar"))


def samples(*steps: Step, base: int | Sample = 0) -> list[tuple[str, Sample]]:
    client = Answering("Yes.")
    asyncio.run(execute(Workflow(steps), "Why?", Team(WORKERS, client), sample=base))
    return [(name, sample) for name, _, sample in client.asked]


def test_a_step_that_asks_again_is_another_sample() -> None:
    again, judge = Step(0, "Solve.", "none"), Step(1, "Vote.", "all")
    asked = samples(again, again, again, judge, base=3)
    assert asked == [("a", Sample(3)), ("a", Sample(3, 1)), ("a", Sample(3, 2)), ("b", Sample(3))]


def test_steps_of_equal_branches_share_no_sample() -> None:
    again, judge = Step(0, "Solve.", "none"), Step(1, "Vote.", "all")
    asked = [sample for branch in range(3) for sample in samples(again, again, judge, base=Sample(1, branch))]
    assert len(set(asked)) == len(asked)


def test_another_worker_subtask_or_view_is_no_repetition() -> None:
    first = Step(0, "Solve.", "none")
    others = (Step(1, "Solve.", "none"), Step(0, "Solve it.", "none"), Step(0, "Solve.", "all"))
    assert all(sample == Sample() for _, sample in samples(first, *others, Step(1, "Vote.", "all")))


def test_steps_that_are_not_run_do_not_count() -> None:
    """The first step does not contribute to the answer, so the second is the first that is executed."""
    step = Step(0, "Solve.", "none")
    assert samples(step, step) == [("a", Sample())]
