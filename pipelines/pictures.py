"""Draw the pictures in docs/images: the README's two diagrams and three workflows, one of them executed.

The workers' responses are fixed texts in this file; the code computes everything else in the pictures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from ops.config import Worker
from ops.core.response import Message, Response, Sample
from ops.workflow.execution import execute
from ops.workflow.grammar import Step, Workflow
from ops.workflow.rendering import render
from ops.workflow.team import Team
from ops.workflow.trace import WorkflowTrace
from pipelines.diagrams import pipeline, question_way

AGGREGATE = Workflow((
    Step(4, "Name the condition that the findings point to, and what threatens the patient first."),
    Step(1, "Say of each option how it acts and how fast."),
    Step(2, "Choose the option that acts on the threat first. Finish with its letter.", "all"),
))  # fmt: skip
"""Two independent steps, and one that reads both."""

TREE = Workflow((
    Step(0, "Derive a candidate for the limit."),
    Step(3, "Look for a gap in the derivation and close it.", "all"),
    Step(5, "Compute the first hundred terms and estimate the limit from them."),
    Step(0, "State the limit, making sure that proof and numbers agree.", "all"),
))  # fmt: skip
"""A chain of two steps beside an independent step."""

RUN = Workflow((
    Step(1, "Look up the atomic numbers of iron and of copper."),
    Step(5, "Guess the answer."),
    Step(0, "Multiply the two numbers.", (0,)),
))  # fmt: skip
"""Fine-grained access: the last step does not read the guess, so the guess is not executed."""

QUESTION = "What is the product of the atomic numbers of iron and copper?"
NAMES = ("algebraist", "librarian", "analyst", "programmer", "editor", "guesser")
WAY = Workflow((
    Step(1, "Look up iron's number."),
    Step(2, "Look up copper's number."),
    Step(0, "Multiply the two numbers.", "all"),
))  # fmt: skip
"""Two independent steps and one that reads both, for the README's diagram."""
WAY_QUESTION = "What is the product of the atomic numbers of iron and copper?"
WAY_NAMES = ("algebraist", "librarian", "scholar")
WAY_SAID = {
    "librarian": ("Iron has the number 26.", 0.0004, 0.6),
    "scholar": ("Copper has the number 29.", 0.0004, 0.7),
    "algebraist": ("Answer: 754", 0.0009, 0.8),
}
SAID = {"librarian": ("Iron has 26, copper has 29.", 0.0004, 0.6), "algebraist": ("Answer: 754", 0.0009, 0.8)}


class Script:
    """A client that answers from `lines`: worker → (text, USD, seconds)."""

    def __init__(self, lines: Mapping[str, tuple[str, float, float]]) -> None:
        self._lines = lines

    async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0) -> Response:
        text, usd, seconds = self._lines[worker.name]
        return Response(text, sum(len(m["content"].split()) for m in messages), len(text.split()), usd, seconds, "stop")


def traced() -> WorkflowTrace:
    """Execute `RUN` and return its trace."""
    offered = [Worker(name=name, model=f"local/{name}") for name in NAMES]
    return asyncio.run(execute(RUN, QUESTION, Team(offered, Script(SAID))))


def draw(folder: Path) -> list[Path]:
    """Write the pictures and return their files."""
    offered = [Worker(name=name, model=f"local/{name}") for name in WAY_NAMES]
    way = asyncio.run(execute(WAY, WAY_QUESTION, Team(offered, Script(WAY_SAID))))
    pictures = {
        "question": question_way(way),
        "pipeline": pipeline(),
        "workflow-aggregate": render(AGGREGATE, "svg"),
        "workflow-run": render(traced(), "svg"),
    }
    folder.mkdir(parents=True, exist_ok=True)
    files = {folder / f"{name}.svg": picture for name, picture in pictures.items()}
    for file, picture in files.items():
        file.write_text(picture, encoding="utf-8")
    return list(files)
