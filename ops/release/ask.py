"""Ask the champion a question, and print the workflow and the answer."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ops.config import load_serving
from ops.core.workspace import Workspace
from ops.serving.openai.agent import AgentExchange

if TYPE_CHECKING:
    from rich.console import Console


def ask_champion(workspace: Workspace, question: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Ask the champion one question and return its response in the format of MLflow's agents.

    `options` are the request's options by name; options without a value are ignored. MLflow stores a trace of the
    request. Raises `PodiumError`; an invalid question is refused before the champion is loaded.
    """
    given = {name: value for name, value in options.items() if value}
    exchange = AgentExchange({"input": [{"role": "user", "content": question}], "custom_inputs": given})
    settings = load_serving(workspace.config)
    from ops.release.champion import open_registered_versions
    from ops.serving.http.routes import RequestRecord
    from ops.serving.in_thread import EngineThread

    with open_registered_versions(workspace) as champion:
        engine = EngineThread.from_files(champion.fetch_files(champion.find_current() or ""), workspace, settings)
        try:
            answer = engine.answer_question(exchange.problem, exchange.options)
        finally:
            engine.close()
        champion.store_trace(RequestRecord(f"ask_{uuid.uuid4().hex}", "ask", answer, True, answer.began, time.time()))
    return exchange.write_response(answer)


def print_answer(answer: Mapping[str, Any], console: Console) -> None:
    """Print a response of the agent: the workflow, each step, the final answer and the cost."""
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    from ops.spending.bookings import format_usd

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
    if outputs["notice"]:
        console.print(Text(outputs["notice"], style="yellow"))
    for fallback in outputs["fallbacks"]:
        led = fallback["by"] or fallback["then"].replace("_", " ")
        console.print(Text(f"{fallback['worker'] or 'the Conductor'}: {fallback['reason']} → {led}", style="yellow"))
    tokens = outputs["prompt_tokens"] + outputs["completion_tokens"]
    console.print(
        f"{tokens} tokens, {format_usd(outputs['cost_usd'])}, "
        f"{outputs['latency_s']:.1f} s along the critical path; "
        f"{outputs['cached']} of {outputs['calls']} responses from the cache",
        highlight=False,
    )
