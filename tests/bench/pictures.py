"""Draw docs/method.md's two workflows, one of them executed. Only the workers' responses are fixed texts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ops.config import Worker
from ops.core.response import Message, Response, Sample
from ops.workflow.execution import execute
from ops.workflow.grammar import Step, Workflow
from ops.workflow.rendering import render
from ops.workflow.team import Team
from ops.workflow.trace import WorkflowTrace

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
SAID = {"librarian": ("Iron has 26, copper has 29.", 0.0004, 0.6), "algebraist": ("Answer: 754", 0.0009, 0.8)}
"""Worker → (text, USD, seconds) of its response."""


class Script:
    """A client that answers with `SAID`."""

    async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0) -> Response:
        text, usd, seconds = SAID[worker.name]
        return Response(text, sum(len(m["content"].split()) for m in messages), len(text.split()), usd, seconds, "stop")


def traced() -> WorkflowTrace:
    """Execute `RUN` and return its trace."""
    offered = [Worker(name=name, model=f"local/{name}") for name in NAMES]
    return asyncio.run(execute(RUN, QUESTION, Team(offered, Script())))


def pictures() -> dict[str, str]:
    """Return file name in docs/images → its SVG."""
    return {"workflow-aggregate.svg": render(AGGREGATE, "svg"), "workflow-run.svg": render(traced(), "svg")}
