"""A workflow, or a trace of one, as a picture (Mermaid) and as text."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ops.workflow.grammar import Workflow
from ops.workflow.trace import StepTrace, Trace


def mermaid(run: Workflow | Trace, names: Sequence[str] = ()) -> str:
    """A Mermaid flowchart: boxes for the steps, arrows for what each of them sees; unused steps dashed.

    Workers stand there by ordinal (`Model 0`) and by name: `names`, by ordinal, for a workflow that has
    not been run.
    """
    workflow = _workflow(run)
    needed = workflow.needed()
    lines = ["flowchart LR", "  question([Question])"]
    for index, (worker, subtask, response) in enumerate(_rows(run, names)):
        ordinal = f"Model {workflow.steps[index].worker}"
        who = ordinal if worker == ordinal else f"{ordinal} · {worker}"
        label = f"<b>{index + 1} · {_label(who, 40)}</b><br/>{_label(subtask, 90)}"
        if response:
            label += f"<br/><i>{_label(response, 60)}</i>"
        lines.append(f'  s{index}["{label}"]{"" if index in needed else ":::unused"}')
        sources = [f"s{seen}" for seen in workflow.visible(index)] or ["question"]
        lines.extend(f"  {source} --> s{index}" for source in sources)
    last = f"s{len(workflow.steps) - 1}" if workflow.steps else "question"
    lines.append(f"  {last} --> answer([Answer])")
    lines.append("  classDef unused stroke-dasharray: 4 4,opacity: 0.5")
    return "\n".join(lines)


def terminal(run: Workflow | Trace, names: Sequence[str] = (), *, width: int = 100) -> str:
    """A few plain lines for each step, cut to `width` characters; a trace adds answers and costs."""
    lines: list[str] = []
    for index, (worker, subtask, _) in enumerate(_rows(run, names)):
        head = f"{index + 1}. {worker}  (sees {_sees(_workflow(run), index)})"
        lines += [_cut(head, width), _cut(f"   asked:  {_one_line(subtask)}", width)]
        if isinstance(run, Trace):
            step = run.steps[index]
            lines.append(_cut(f"   {_said(step)}", width))
            if step.status == "ok":
                lines.append(f"   {_price(step)}")
    if isinstance(run, Trace):
        lines += [_cut(f"Answer: {_answer(run)}", width), _total(run)]
    return "\n".join(lines) or "(no steps: keeps the previous answer)"


def markdown(run: Workflow | Trace, names: Sequence[str] = ()) -> str:
    """A Markdown table, one row a step; a trace adds answers, tokens and USD, and a line of totals."""
    traced = isinstance(run, Trace)
    head = ["step", "worker", "subtask", "sees", *(["answer", "tokens", "USD"] if traced else [])]
    lines = [_row(head), _row(["---"] * len(head))]
    for index, (worker, subtask, _) in enumerate(_rows(run, names)):
        cells = [str(index + 1), worker, _cut(_one_line(subtask), 160), _sees(_workflow(run), index)]
        if isinstance(run, Trace):
            step = run.steps[index]
            answer = _one_line(step.response) if step.status == "ok" else _silence(step)
            tokens = step.prompt_tokens + step.completion_tokens
            cells += [_cut(answer, 160), str(tokens), f"{step.cost_usd:.6f}"]
        lines.append(_row(cells))
    if isinstance(run, Trace):
        lines += ["", f"**Answer:** {_escape(_cut(_answer(run), 300))}", "", _total(run)]
    return "\n".join(lines)


def usd(amount: float) -> str:
    """USD with two significant digits and no exponent, so that small costs stay readable: `$0.000085`."""
    if amount == 0:
        return "$0"
    digits = max(2, 1 - math.floor(math.log10(abs(amount))))
    return f"${amount:.{digits}f}"


def _workflow(run: Workflow | Trace) -> Workflow:
    return run.workflow if isinstance(run, Trace) else run


def _rows(run: Workflow | Trace, names: Sequence[str]) -> list[tuple[str, str, str]]:
    """(worker, subtask, response) of each step."""
    if isinstance(run, Trace):
        return [(step.worker, step.subtask, step.response) for step in run.steps]
    return [
        (names[step.worker] if step.worker < len(names) else f"Model {step.worker}", step.subtask, "")
        for step in run.steps
    ]


def _sees(workflow: Workflow, index: int) -> str:
    seen = workflow.visible(index)
    return "question" if not seen else "question, " + ", ".join(f"step {other + 1}" for other in seen)


def _said(step: StepTrace) -> str:
    return f"answer: {_one_line(step.response)}" if step.status == "ok" else _silence(step)


def _silence(step: StepTrace) -> str:
    if step.status == "pruned":
        return "not run: the answer cannot depend on it"
    if step.status == "not_run":
        return "not run: another step had failed"
    return f"{step.status}: {_one_line(step.error)}"


def _answer(trace: Trace) -> str:
    return f"none ({trace.status})" if trace.answer is None else _one_line(trace.answer)


def _price(step: StepTrace) -> str:
    tokens = step.prompt_tokens + step.completion_tokens
    cached = ", cached" if step.cached else ""
    return f"{tokens} tokens, ${step.cost_usd:.6f}, {step.latency_s:.2f} s{cached}"


def _total(trace: Trace) -> str:
    calls = "1 call" if trace.calls == 1 else f"{trace.calls} calls"
    return (
        f"{calls} ({trace.cached} cached), {trace.tokens} tokens, "
        f"${trace.cost_usd:.6f}, {trace.latency_s:.2f} s on the critical path"
    )


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_escape(cell) for cell in cells) + " |"


def _escape(text: str) -> str:
    """Text that cannot break out of a Markdown table or bring HTML with it."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")


_ENTITIES = {character: f"#{ord(character)};" for character in '"#<>&`\\[]{}()|;'}


def _label(text: str, length: int) -> str:
    """Text for a quoted Mermaid label: Mermaid's own entities for whatever it would read as syntax."""
    return "".join(_ENTITIES.get(character, character) for character in _cut(_one_line(text), length))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"
