"""Conductors without weights, which are a worker that is prompted to write workflows, and a fixed workflow."""

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
"""The subtask of a worker that writes a workflow. The Conductor's prompt takes the place of the question."""


class NoWorkflowWritten(PodiumError):
    """Raised if the worker that writes the workflows cannot be reached or refuses the request."""


async def write_workflow(worker: int, prompt: str, team: Team, sample: int | Sample) -> WorkflowTrace:
    """Let a worker of the team write a workflow, and return the trace of the call, whose answer is the written text.

    The store, the limits, the deadline and the handling of failures are the same as for every other call. Raises the
    client's `OverBudget` and `ConfigError`.
    """
    return await execute_workflow(Workflow.single(worker, WRITE_SUBTASK), prompt, team, sample=sample)


class PromptedConductor:
    """A Conductor that prompts a worker of the pool to write the workflow of each question."""

    prompt_limit: int | None = None
    """The limit is unknown, because providers do not state it. The worker rejects a prompt that is too long."""

    def __init__(self, card: PolicyCard, policy: PromptedPolicy) -> None:
        self.card, self.worker = card, card.offered.index(policy.worker)

    async def write_completion(self, messages: Sequence[Message], team: Team, *, sample: int) -> Completion:
        """Return one completion, which is written by a call through the team's client.

        The worker that writes must be on offer in `team`. Raises `NoWorkflowWritten` if it sends no response, and the
        client's `OverBudget` and `ConfigError`.
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
        """Return True, because the limit is unknown (see `prompt_limit`)."""
        return True

    def close(self) -> None:
        """Do nothing, because there are no weights to free."""


class StaticConductor(TextWriter):
    """A Conductor that writes the same workflow for every question, at no cost."""

    prompt_limit: int | None = None
    """There is no limit, because prompts are not read."""

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
        """Return True, because prompts are not read."""
        return True

    def close(self) -> None:
        """Do nothing, because there are no weights to free."""
