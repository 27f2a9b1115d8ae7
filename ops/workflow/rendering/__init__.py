"""Render a workflow, or a trace of one, for people: the same facts in three formats.

What belongs here: the formats, drawn (`svg`) or in characters (`text`). What does not: the facts
(`ops.workflow.trace`), and the completion's own text (`Workflow.render`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from ops.workflow.grammar import Workflow
from ops.workflow.rendering.svg import svg
from ops.workflow.rendering.text import markdown, text
from ops.workflow.trace import WorkflowTrace

Format = Literal["text", "markdown", "svg"]
_FORMATS: dict[Format, Callable[[Workflow | WorkflowTrace, Sequence[str]], str]] = {
    "text": text,
    "markdown": markdown,
    "svg": svg,
}


def render(run: Workflow | WorkflowTrace, format: Format, names: Sequence[str] = ()) -> str:  # noqa: A002
    """Render the steps with what each of them reads; a trace adds responses, tokens, USD and seconds.

    `names` are workers by ordinal, for a workflow that has not been run. No text of a model can become markup.
    """
    return _FORMATS[format](run, names)
