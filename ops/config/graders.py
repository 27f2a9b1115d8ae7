"""A benchmark's own grader: a user's function in the sandbox, or a worker as judge."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ops.config.base import PoolName, Settings, digest
from ops.config.pool import Worker


class FunctionGrader(Settings):
    """A Python function of yours that grades each answer. It runs in the sandbox."""

    kind: Literal["function"] = "function"
    """Must be `function`."""
    file: str = Field(min_length=1)
    """The Python file of the function, as a path from the project's folder."""
    function: str = Field(default="grade", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """The name of the function `grade(problem, answer)`. It returns True, False or a number from 0 to 1, of which only
    1 counts as right. `problem` is a dict with the keys id, question, answer, choices, subject and level. `answer` is
    the response without its reasoning."""
    source: str = Field(default="", repr=False)
    """The file's text, which the recipe's loading fills in."""

    @property
    def version(self) -> str:
        """A hash of everything that can change a verdict."""
        return f"function-{digest([self.function, self.source])}"


class JudgeGrader(Settings):
    """A worker that decides by a rubric whether an answer is right. Its calls are stored and count towards the
    budget."""

    kind: Literal["judge"] = "judge"
    """Must be `judge`."""
    worker: str
    """The name of the worker in `pool`."""
    pool: PoolName | None = None
    """The pool of the judge. If it is not set, this is the recipe's pool."""
    rubric: str = Field(pattern=r"\S")
    """The text that tells the judge when an answer is right."""
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
