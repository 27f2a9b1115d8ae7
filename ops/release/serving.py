"""What agents of versions import that were registered before `ops.serving` was there: they go on answering."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.config import Serving
from ops.core.errors import PodiumError
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.serving import wishes
from ops.serving.answer import Answer, Run
from ops.serving.in_thread import EngineThread
from ops.serving.loaded import VersionFiles


class NoWorkflowError(PodiumError):
    """The Conductor wrote no valid workflow for this question, however often it was asked."""


def question(text: str, inputs: Mapping[str, Any] | None = None) -> Problem:
    """As `ops.serving.wishes.question`."""
    known = {name: value for name, value in (inputs or {}).items() if name in ("grader", "choices", "execute")}
    return wishes.question(text, wishes.wishes_of(known, "custom_inputs"), "custom_inputs")


@dataclass(frozen=True)
class Written:
    """A workflow for one question."""

    problem: Problem
    text: str


@dataclass(frozen=True)
class Served:
    """An executed workflow."""

    trace: Run
    answer: Answer

    def as_outputs(self) -> dict[str, Any]:
        """JSON-ready: the workflow, its steps, tokens, USD, seconds."""
        return self.answer.account(texts=True)


class Service:
    """One version, asked in two steps."""

    def __init__(self, policy: Path, pool: Path, workspace: Workspace, key: str | None) -> None:
        self._files = VersionFiles("unknown", policy, pool, {"policy": key})
        self._workspace = workspace
        self._engine = EngineThread.load(self._files, workspace, Serving())

    @classmethod
    def load(cls, policy: Path, pool_file: Path, workspace: Workspace, key: str | None = None) -> Service:
        """Raises as `Loaded.read` does."""
        return cls(policy, pool_file, workspace, key)

    def write(self, problem: Problem) -> Written:
        """A workflow. Raises `NoWorkflowError`."""
        answer = self._engine.ask(problem, wishes.Wishes(execute=False))
        if answer.text is None:
            raise NoWorkflowError(answer.error)
        return Written(problem, answer.text)

    def execute(self, written: Written, *, cap_usd: float) -> Served:
        """Its answer, for at most `cap_usd`. Raises `PodiumError` where nothing could be run."""
        answer = self._engine.ask(written.problem, wishes.Wishes(budget_usd=cap_usd))
        if answer.standing is None and not answer.runs:
            raise PodiumError(answer.error)
        return Served(answer.standing or answer.runs[-1], answer)
