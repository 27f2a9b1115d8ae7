"""Asking the champion a question, and printing how it came to its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ops.core.workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console


def ask(workspace: Workspace, text: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The champion's response; `inputs` are the agent's custom inputs.

    Raises `PodiumError`, for a bad question before anything is loaded.
    """
    from ops.release.registry import predict
    from ops.release.serving import question

    question(text, inputs)
    request = {"input": [{"role": "user", "content": text}], "custom_inputs": dict(inputs)}
    return predict(workspace, request)


def show(answer: Mapping[str, Any], console: Console) -> None:
    """Print a response of the agent: its workflow, each step, the final answer and what it cost."""
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    from ops.spending.money import usd

    outputs = answer["custom_outputs"]
    text = "".join(part["text"] for part in answer["output"][0]["content"])
    if not outputs["workflow"]:
        console.print(text, style="red", markup=False)
        return
    console.print(Panel(Text(outputs["workflow"]), title="workflow", title_align="left"))
    steps = Table("step", "worker", "sees", "subtask", "answer", show_lines=True)
    for step in outputs["steps"]:
        sees = ", ".join(str(i + 1) for i in step["sees"]) or "question"
        given = step["response"] if step["status"] == "ok" else f"({step['status']})"
        steps.add_row(str(step["index"] + 1), step["worker"], sees, Text(step["subtask"]), Text(given))
    console.print(steps)
    console.print(Panel(Text(text, style="bold"), title="answer", title_align="left"))
    tokens = outputs["prompt_tokens"] + outputs["completion_tokens"]
    console.print(
        f"{tokens} tokens, {usd(outputs['cost_usd'])}, "
        f"{outputs['latency_s']:.1f} s along the critical path; "
        f"{outputs['cached']} of {outputs['calls']} responses from the cache",
        highlight=False,
    )
