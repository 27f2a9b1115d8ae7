"""Answering one question with a Conductor: what the serving agent does, without MLflow."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ops.benchmarks.registry import BENCHMARKS
from ops.conductor.policy import PolicyCard
from ops.conductor.writer import ENV, AnyConductor, load_conductor
from ops.config import TRANSFORMERS, Pool, RoundLimits, load
from ops.core.errors import DataError, PodiumError
from ops.core.problem import Problem
from ops.core.resources import resources
from ops.core.response import Message
from ops.core.workspace import Workspace
from ops.evaluation.runner import Writer
from ops.workflow.grammar import Workflow
from ops.workflow.recursion import CallBudget, RecursiveTrace, recurse
from ops.workflow.team import Team

if TYPE_CHECKING:
    from ops.workflow.trace import Trace

T = TypeVar("T")
GRADERS = ("math", "choice", "text", "code")
ATTEMPTS = 3
"""Completions tried for one question: a greedy one, then sampled ones."""


class NoWorkflowError(PodiumError):
    """The Conductor wrote no valid workflow for this question, however often it was asked."""


@dataclass(frozen=True)
class Written:
    """A workflow for one question. `text` is its rendering, `attempts` how many completions it took."""

    problem: Problem
    workflow: Workflow
    text: str
    attempts: int
    completion: str
    """What the Conductor wrote, as it reads it again where it works in rounds."""


@dataclass(frozen=True)
class Served:
    """An executed workflow, or all rounds where the Conductor works in rounds; `trace.answer` is None when a worker
    could not be reached or refused."""

    written: Written
    trace: Trace | RecursiveTrace

    def as_outputs(self) -> dict[str, Any]:
        """JSON-ready: the trace's row (workflow, status, steps, tokens, USD, seconds) and the attempts."""
        return self.trace.as_row() | {"attempts": self.written.attempts}


def question(text: str, inputs: Mapping[str, Any] | None = None) -> Problem:
    """A user's question as a problem; `inputs` may name its `grader` (default "text") and `choices`.

    The grader decides the form in which workers are told to answer; nothing is
    graded. Raises `DataError` when the question is empty or an input unusable.
    """
    inputs = inputs or {}
    choices = inputs.get("choices") or ()
    if not text.strip():
        raise DataError("request", "input", "holds no question", "Send a user message with text")
    if not isinstance(choices, (list, tuple)) or not all(isinstance(choice, str) for choice in choices):
        raise DataError("request", "custom_inputs.choices", "is not a list of texts", 'Send ["one", "two"]')
    grader = inputs.get("grader") or ("choice" if choices else "text")
    if grader not in GRADERS:
        raise DataError("request", "custom_inputs.grader", f"is {grader!r}", f"Use one of {', '.join(GRADERS)}")
    domain = next(entry.domain for entry in BENCHMARKS.values() if entry.grader == grader)
    row = {
        "id": uuid.uuid4().hex,
        "benchmark": "question",
        "domain": domain,
        "split": "test",
        "source": "user",
    }
    return Problem.from_row(row | {"question": text.strip(), "answer": "", "grader": grader, "choices": choices})


class Service:
    """A loaded Conductor with the workers that it may use and the cache that it shares."""

    def __init__(self, conductor: Writer, card: PolicyCard, pool: Pool, workspace: Workspace) -> None:
        self.conductor, self.workspace = conductor, workspace
        data = resources() / "data"
        self.team = card.team(pool, data, card.execution)
        self._limits = card.rounds
        self._budget = None if card.rounds is None else CallBudget(card.rounds.calls_ratio)

    @classmethod
    def load(cls, policy: Path, pool_file: Path, workspace: Workspace, key: str | None = None) -> Service:
        """Load a policy folder and the pool that it was released with; `$PODIUM_WRITER` says who writes for it.

        `key`: the policy's, where the folder's name is not. Raises `DataError` when the folder is not a policy's or
        names a worker that the pool lacks, `ConfigError` when the pool cannot be read or the writer cannot write.
        """
        card, pool = PolicyCard.read(policy), load(Pool, pool_file)
        if missing := [name for name in card.offered if name not in pool.names]:
            problem = f"names {', '.join(missing)}, not in pool {pool.name!r}"
            raise DataError(policy, "offered", problem, "Fine-tune the policy on that pool")
        conductor = load_conductor(policy, os.environ.get(ENV) or TRANSFORMERS, ENV, key)
        return cls(conductor, card, pool, workspace)

    def write(self, problem: Problem) -> Written:
        """Let the Conductor write a workflow: greedy first, then sampled. Raises `NoWorkflowError`."""
        messages, detail = self.team.messages(problem), ""
        for attempt in range(ATTEMPTS):
            [completion] = self.conductor.write([messages], temperature=0.0 if attempt == 0 else 0.7, seed=attempt)
            parsed = self.team.read(completion)
            if parsed.workflow is not None:
                return Written(problem, parsed.workflow, parsed.workflow.render(), attempt + 1, completion)
            detail = f"{parsed.failure}: {parsed.detail}"
        raise NoWorkflowError(
            f"The Conductor wrote no valid workflow in {ATTEMPTS} attempts (last: {detail}). "
            "Its questions may be too unlike the ones that it was trained on"
        )

    def execute(self, written: Written, *, cap_usd: float) -> Served:
        """Run the workflow, and further rounds where the policy was trained to go on within its card's limits (all
        questions since the service was loaded are one set), spending at most `cap_usd`. Raises `OverBudget`,
        `ConfigError`."""
        return Served(written, in_thread(self._execute(written, cap_usd)))

    async def _execute(self, written: Written, cap_usd: float) -> Trace | RecursiveTrace:
        from ops.benchmarks.prompts import worker_prompt
        from ops.cache import open_cache
        from ops.spending.ledger import Ledger
        from ops.workers.call import Account
        from ops.workers.client import WorkerClient
        from ops.workflow.execution import execute

        cache, ledger = open_cache(self.workspace.cache), Ledger(self.workspace.ledger)
        client = WorkerClient(cache, ledger, Account(f"serving-{written.problem.id}", "serving", cap_usd))
        try:
            team = replace(self.team, client=client)
            if self._limits is None:
                return await execute(written.workflow, worker_prompt(written.problem), team)
            return await self._in_rounds(written, team, self._limits)
        finally:
            ledger.close()
            cache.close()

    async def _in_rounds(self, written: Written, team: Team, limits: RoundLimits) -> RecursiveTrace:
        begun = False

        async def write(prompts: list[list[Message]]) -> list[str]:
            nonlocal begun
            if not begun:  # its first workflow is written already
                begun = True
                return [written.completion]
            return await asyncio.to_thread(self.conductor.write, prompts)

        fits = self.conductor.fits if isinstance(self.conductor, AnyConductor) else None
        [rounds] = await recurse([written.problem], write, team, limits, budget=self._budget, fits=fits)
        return rounds


def in_thread(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine from code that may be inside an event loop already (a notebook, a server)."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, work).result()
