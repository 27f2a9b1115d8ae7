"""A benchmark's own grader: a user's function in the sandbox, or a worker as judge."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ops.config.base import PoolName, Settings, digest
from ops.config.pool import Worker


class FunctionGrader(Settings):
    """A user's Python function, run in the sandbox for each answer."""

    kind: Literal["function"] = "function"
    file: str = Field(min_length=1)
    """A Python file; a path from the project's root."""
    function: str = Field(default="grade", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """Its function `grade(problem, answer)`: True, False or a number from 0 to 1, of which only 1 counts as right.
    `problem` is a dict (id, question, answer, choices, subject, level), `answer` the response after its reasoning."""
    source: str = Field(default="", repr=False)
    """The file's text, which the recipe's loading fills in."""

    @property
    def version(self) -> str:
        """A hash of everything that can change a verdict."""
        return f"function-{digest([self.function, self.source])}"


class JudgeGrader(Settings):
    """A worker that decides by a rubric whether an answer is right. Its calls are cached and count in the budget."""

    kind: Literal["judge"] = "judge"
    worker: str
    """The judge: a worker of `pool`."""
    pool: PoolName | None = None
    """The judge's pool. None: the recipe's."""
    rubric: str = Field(pattern=r"\S")
    """When an answer is right."""
    scored_too: bool = False
    """Whether the judge may be a model whose own answers it grades."""
    asked: Worker | None = Field(default=None, repr=False)
    """The judge itself, which the recipe's loading fills in."""

    @property
    def version(self) -> str:
        """A hash of everything that can change a verdict."""
        return f"judge-{digest([self.judge.identity, self.rubric])}"

    @property
    def judge(self) -> Worker:
        """Return the judge. Raises `RuntimeError` before `resolve_recipe` has found it."""
        if self.asked is None:
            raise RuntimeError(f"the judge {self.worker!r} was not looked up in its pool")
        return self.asked


BenchmarkGrader = Annotated[FunctionGrader | JudgeGrader, Field(discriminator="kind")]
