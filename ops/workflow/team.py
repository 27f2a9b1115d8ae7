"""The workers on offer, with everything that it takes to let a Conductor use them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ops.config import Execution, Prompting, Worker
from ops.core.problem import Problem
from ops.core.response import Message, Response
from ops.workers.types import Client
from ops.workflow.cards import WorkerCard
from ops.workflow.few_shots import FewShot
from ops.workflow.grammar import Parsed, parse
from ops.workflow.prompt import conductor_messages


class _Nobody:
    """The client of a team that is shown and never asked."""

    async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0) -> Response:
        raise RuntimeError(f"worker {worker.name!r} cannot be asked: this team has no client")


NOBODY: Client = _Nobody()


@dataclass(frozen=True)
class Team:
    """The offered workers by ordinal: how a Conductor is told of them, and how its workflows reach them."""

    workers: Sequence[Worker]
    client: Client = NOBODY
    prompting: Prompting = field(default_factory=Prompting)
    few_shots: Sequence[FewShot] = ()
    cards: Sequence[WorkerCard] = ()
    """What was measured of the workers, by ordinal; shown where `prompting.cards` asks for it."""
    execution: Execution = field(default_factory=Execution)
    """The limits of every workflow."""

    @property
    def names(self) -> tuple[str, ...]:
        """The workers' names, by ordinal."""
        return tuple(worker.name for worker in self.workers)

    def messages(self, problem: Problem) -> list[Message]:
        """The chat that asks the Conductor for a workflow. Raises as `conductor_messages` does."""
        return conductor_messages(problem, len(self.workers), self.prompting, self.few_shots, cards=self.cards)

    def read(self, completion: str, *, recursive: bool = False) -> Parsed:
        """The workflow in a completion; `recursive`: of a later round, where three empty lists keep the answer."""
        prompting = self.prompting
        return parse(
            completion,
            offered=len(self.workers),
            max_steps=prompting.max_steps,
            access=prompting.access,
            recursive=recursive,
        )
