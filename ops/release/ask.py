"""`python -m ops.release.ask "question"`: ask the champion, and see how it came to its answer."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ops.core.errors import PodiumError
from ops.core.workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 with an answer, 1 without one, the reason on stderr."""
    parser = argparse.ArgumentParser(prog="ask", description="Ask the champion Conductor a question.")
    parser.add_argument("question", help="the question, in quotes")
    parser.add_argument("--grader", choices=["text", "math", "choice", "code"], help="form of the answer (text)")
    parser.add_argument("--choice", action="append", default=[], metavar="TEXT", help="a choice; give it repeatedly")
    chosen = parser.parse_args(arguments)

    from rich.console import Console

    from ops.release.serving import question

    inputs = {"grader": chosen.grader, "choices": chosen.choice}
    try:
        question(chosen.question, inputs)  # a bad question is told before anything is loaded
        answer = _ask(Workspace.find(), chosen.question, inputs)
    except (PodiumError, FileNotFoundError) as error:
        Console(stderr=True).print(str(error), style="red", markup=False, highlight=False)
        return 1
    show(answer, Console())
    return 0 if answer.get("status") == "completed" else 1


def _ask(workspace: Workspace, text: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    from ops.release.registry import predict

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


if __name__ == "__main__":
    # This process imports a lot, answers one question and ends: nothing that it imports is garbage, what
    # transformers would do with scikit-learn, SciPy and accelerate (assisted decoding, other models' losses,
    # several devices) no Conductor does, and taking torch apart again takes a second. Stores are closed and traces
    # flushed when `main` returns.
    gc.disable()
    for unused in ("sklearn", "scipy", "accelerate"):
        sys.modules[unused] = None  # type: ignore[assignment]
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
