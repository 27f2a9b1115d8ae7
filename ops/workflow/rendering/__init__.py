"""Render a workflow or its trace for people as text, as a Markdown table or as an SVG picture.

This package contains only the formats (`svg` and `text`). The rendered facts come from `ops.workflow.trace`. The text
of a workflow that the grammar can parse is made by `Workflow.render`.
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
    """Render the steps of a workflow and what each of them sees.

    For a trace, the result also contains responses, tokens, USD and seconds. `worker_names` gives the workers by
    ordinal for a workflow that has not been executed. Texts of models are escaped, so that they cannot add markup.
    """
    return _FORMATS[format](workflow, worker_names)
