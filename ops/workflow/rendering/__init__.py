"""Render a workflow, or a trace of one, for people: the same facts in three formats.

What belongs here: the formats, drawn (`render_svg`) or in characters (`render_text`). What does not: the facts
(`ops.workflow.trace`), and the completion's own text (`Workflow.render_workflow`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from ops.workflow.grammar import Workflow
from ops.workflow.rendering.svg import render_svg
from ops.workflow.rendering.text import render_markdown, render_text
from ops.workflow.trace import WorkflowTrace

Format = Literal["text", "markdown", "svg"]
_FORMATS: dict[Format, Callable[[Workflow | WorkflowTrace, Sequence[str]], str]] = {
    "text": render_text,
    "markdown": render_markdown,
    "svg": render_svg,
}


def render_workflow(workflow: Workflow | WorkflowTrace, format: Format, worker_names: Sequence[str] = ()) -> str:  # noqa: A002
    """Render the steps with what each of them reads; a trace adds responses, tokens, USD and seconds.

    `worker_names` are workers by ordinal, for a workflow that has not been run. No text of a model can become markup.
    """
    return _FORMATS[format](workflow, worker_names)
