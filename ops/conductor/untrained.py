"""A Conductor without weights: a worker that is prompted to write the workflows, or one fixed workflow."""

from __future__ import annotations

from collections.abc import Sequence

from ops.conductor.policy import Completion, PolicyCard, TextWriter
from ops.config import PromptedPolicy, StaticPolicy
from ops.core.errors import PodiumError
from ops.core.messages import Message, Sample
from ops.workflow.execution import execute_workflow
from ops.workflow.grammar import Step, Workflow
from ops.workflow.team import Team
from ops.workflow.trace import WorkflowTrace

WRITE_SUBTASK = "Write the workflow."
"""The subtask for a worker that writes a workflow; the Conductor's prompt takes the place of the question."""


class NoWorkflowWritten(PodiumError):
    """The worker that writes the workflows cannot be reached, or refused."""


async def write_workflow(worker: int, prompt: str, team: Team, sample: int | Sample) -> WorkflowTrace:
    """Let a worker of the team write a workflow; the trace's answer is its text.

    The executor applies the same cache, limits, deadline and handling of failures as to any other call. Raises
    `OverBudget` and `ConfigError` as the client does.
    """
    return await execute_workflow(Workflow.single(worker, WRITE_SUBTASK), prompt, team, sample=sample)


class PromptedConductor:
    """A worker of the pool that is prompted to write each question's workflow."""

    prompt_limit: int | None = None
    """A provider does not state it: a prompt that is too long is refused by the worker."""

    def __init__(self, card: PolicyCard, policy: PromptedPolicy) -> None:
        self.card, self.worker = card, card.offered.index(policy.worker)

    async def write_completion(self, messages: Sequence[Message], team: Team, *, sample: int) -> Completion:
        """One completion, by a call of the team's client. `team` must offer the worker that writes.

        Raises `NoWorkflowWritten` where no response came, `OverBudget` and `ConfigError` as the client does.
        """
        [message] = messages
        trace = await write_workflow(self.worker, message["content"], team, sample)
        step = trace.steps[0]
        if not step.is_paid:
            raise NoWorkflowWritten(f"{step.worker}, which writes the workflows: {step.error or trace.error}")
        said = step.response
        ended = said.finish_reason != "length"
        return Completion(said.text, ended, said.prompt_tokens, said.completion_tokens, step.worker, said)

    def has_room(self, prompt: Sequence[Message]) -> bool:
        """True: see `prompt_limit`."""
        return True

    def close(self) -> None:
        """Does nothing: there are no weights."""


class StaticConductor(TextWriter):
    """One fixed workflow, written for every question at no cost."""

    prompt_limit: int | None = None
    """No prompt is read."""

    def __init__(self, card: PolicyCard, policy: StaticPolicy) -> None:
        self.card = card
        self.workflow = Workflow(
            tuple(Step(card.offered.index(step.worker), step.subtask, step.access) for step in policy.workflow)
        )

    def _complete(
        self, prompts: Sequence[Sequence[Message]], temperature: float, seed: int, longest: int
    ) -> list[Completion]:
        return [Completion(self.workflow.render(), is_ended=True) for _ in prompts]

    def has_room(self, prompt: Sequence[Message]) -> bool:
        """True: no prompt is read."""
        return True

    def close(self) -> None:
        """Does nothing: there are no weights."""
