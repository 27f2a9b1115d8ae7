"""A team combines the workers on offer with the client, prompt settings and limits that workflows need."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ops.config import Execution, Prompting, Worker
from ops.core.messages import Message
from ops.core.problem import Problem
from ops.core.response import Response
from ops.workers.scheduling import Client
from ops.workflow.cards import WorkerCard
from ops.workflow.few_shots import FewShot
from ops.workflow.grammar import ParseResult, offered_ordinals, parse_workflow
from ops.workflow.prompt import build_conductor_messages


class _NoClient:
    """A client that raises an error on every call, for a team whose workers appear only in prompts."""

    async def complete(self, worker: Worker, messages: Sequence[Message], **_: Any) -> Response:
        raise RuntimeError(f"worker {worker.name!r} cannot be asked: this team has no client")


NO_CLIENT: Client = _NoClient()
"""The client of a team whose workers are never called. Every call raises `RuntimeError`."""


@dataclass(frozen=True)
class Team:
    """The workers on offer, together with everything that is needed to prompt the Conductor and run its workflows."""

    workers: Sequence[Worker]
    """All workers; the position of a worker is its ordinal."""
    client: Client = NO_CLIENT
    """The client through which workflows call the workers."""
    prompting: Prompting = field(default_factory=Prompting)
    """The settings of the Conductor's prompt and of the workflows that it may write."""
    few_shots: Sequence[FewShot] = ()
    """The worked examples that the prompt shows."""
    cards: Sequence[WorkerCard] = ()
    """The description of each worker by ordinal. The prompt shows them if `prompting.cards` is True."""
    execution: Execution = field(default_factory=Execution)
    """The limits on the time of every workflow and on the responses that its steps pass on."""
    offered: Sequence[int] | None = None
    """The ordinals of the workers on offer, or None if all workers are on offer."""

    @property
    def ordinals(self) -> Collection[int]:
        """Return the ordinals of the workers on offer."""
        return offered_ordinals(len(self.workers) if self.offered is None else self.offered)

    def restrict_to(self, ordinals: Sequence[int], *, renumbered: bool = False) -> Team:
        """Return the same team with only the workers that have the given ordinals on offer.

        The workers keep their ordinals. If `renumbered` is True, they get new ordinals from 0 in the given order.
        Raises `ValueError` if `ordinals` is empty, names a worker twice, or names a worker that is not on offer.
        """
        if not ordinals or len(set(ordinals)) < len(ordinals) or not set(ordinals) <= set(self.ordinals):
            raise ValueError(f"{list(ordinals)} is no part of the workers on offer, {list(self.ordinals)}")
        if not renumbered:
            return replace(self, offered=tuple(sorted(ordinals)))
        workers = [self.workers[ordinal] for ordinal in ordinals]
        return replace(self, workers=workers, cards=self._cards_of(ordinals), offered=None)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all workers in the order of their ordinals."""
        return tuple(worker.name for worker in self.workers)

    def build_messages(self, problem: Problem) -> list[Message]:
        """Return the chat that asks the Conductor for a workflow.

        Raises `ValueError` if the prompt shows worker cards and a worker has none.
        """
        cards = self._cards_of(self.ordinals)
        return build_conductor_messages(problem, self.ordinals, self.prompting, self.few_shots, cards=cards)

    def _cards_of(self, ordinals: Collection[int]) -> Sequence[WorkerCard]:
        return [self.cards[ordinal] for ordinal in ordinals] if self.cards else ()

    def parse(self, completion: str, *, recursive: bool = False) -> ParseResult:
        """Parse the workflow in a completion according to the team's prompt settings.

        `recursive` is True for a later round, in which three empty lists keep the previous answer.
        """
        prompting = self.prompting
        parsed = parse_workflow(
            completion,
            offered=self.ordinals,
            max_steps=prompting.max_steps,
            access=prompting.access,
            recursive=recursive,
        )
        if prompting.subtasks or parsed.workflow is None:
            return parsed
        return replace(parsed, workflow=parsed.workflow.without_subtasks())
