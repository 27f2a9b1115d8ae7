"""The workers on offer, with the client, prompt settings and limits that a Conductor's workflows need."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ops.config import Execution, Prompting, Worker
from ops.core.messages import Message, Sample
from ops.core.problem import Problem
from ops.core.response import Response
from ops.workers.scheduling import INDEPENDENT_CALL, Client, Turn
from ops.workflow.cards import WorkerCard
from ops.workflow.few_shots import FewShot
from ops.workflow.grammar import ParseResult, offered_ordinals, parse_workflow
from ops.workflow.prompt import build_conductor_messages


class _NoClient:
    """The client of a team whose workers appear in prompts but are never called."""

    async def complete(
        self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0, turn: Turn = INDEPENDENT_CALL
    ) -> Response:
        raise RuntimeError(f"worker {worker.name!r} cannot be asked: this team has no client")


NO_CLIENT: Client = _NoClient()


@dataclass(frozen=True)
class Team:
    """The workers by ordinal: how a prompt describes those on offer, and how workflows call them."""

    workers: Sequence[Worker]
    client: Client = NO_CLIENT
    prompting: Prompting = field(default_factory=Prompting)
    few_shots: Sequence[FewShot] = ()
    cards: Sequence[WorkerCard] = ()
    """Worker descriptions by ordinal; shown if `prompting.cards` is set."""
    execution: Execution = field(default_factory=Execution)
    """The limits of every workflow."""
    answer_parameters: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the call of the last step, whose response is the answer, such as `response_format`."""
    offered: Sequence[int] | None = None
    """The offered ordinals if some workers are omitted; None: all of them."""

    @property
    def ordinals(self) -> Collection[int]:
        """Return the offered ordinals."""
        return offered_ordinals(len(self.workers) if self.offered is None else self.offered)

    def restrict_to(self, ordinals: Sequence[int], *, renumbered: bool = False) -> Team:
        """Return the same team with only these of its offered workers, which keep their ordinals; `renumbered`: they
        count from 0 in the given order.

        Raises `ValueError` if none is left, or one is named twice or is not offered here.
        """
        if not ordinals or len(set(ordinals)) < len(ordinals) or not set(ordinals) <= set(self.ordinals):
            raise ValueError(f"{list(ordinals)} is no part of the workers on offer, {list(self.ordinals)}")
        if not renumbered:
            return replace(self, offered=tuple(sorted(ordinals)))
        workers = [self.workers[ordinal] for ordinal in ordinals]
        return replace(self, workers=workers, cards=self._cards_of(ordinals), offered=None)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the workers' names by ordinal."""
        return tuple(worker.name for worker in self.workers)

    def build_messages(self, problem: Problem) -> list[Message]:
        """Return the chat that asks the Conductor for a workflow. Raises the errors of `build_conductor_messages`."""
        cards = self._cards_of(self.ordinals)
        return build_conductor_messages(problem, self.ordinals, self.prompting, self.few_shots, cards=cards)

    def _cards_of(self, ordinals: Collection[int]) -> Sequence[WorkerCard]:
        return [self.cards[ordinal] for ordinal in ordinals] if self.cards else ()

    def parse(self, completion: str, *, recursive: bool = False) -> ParseResult:
        """Parse the workflow in a completion; `recursive`: of a later round, in which three empty lists keep the
        answer."""
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
