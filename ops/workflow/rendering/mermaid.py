"""A Mermaid flowchart."""

from __future__ import annotations

from collections.abc import Sequence

from ops.workflow.grammar import Workflow
from ops.workflow.rendering.words import cut, one_line, worker_names, workflow_of
from ops.workflow.trace import Trace

_ENTITIES = {character: f"#{ord(character)};" for character in '"#<>&`\\[]{}()|;'}


def mermaid(run: Workflow | Trace, names: Sequence[str] = ()) -> str:
    """Boxes for the steps, arrows for what each of them sees; unused steps dashed.

    Workers stand there by ordinal (`Model 0`) and by name.
    """
    workflow = workflow_of(run)
    needed = workflow.needed()
    lines = ["flowchart LR", "  question([Question])"]
    for index, worker in enumerate(worker_names(run, names)):
        response = run.steps[index].response.text if isinstance(run, Trace) else ""
        lines.append(f'  s{index}["{_box(workflow, index, worker, response)}"]{"" if index in needed else ":::unused"}')
        sources = [f"s{seen}" for seen in workflow.visible(index)] or ["question"]
        lines.extend(f"  {source} --> s{index}" for source in sources)
    last = f"s{len(workflow.steps) - 1}" if workflow.steps else "question"
    lines.append(f"  {last} --> answer([Answer])")
    lines.append("  classDef unused stroke-dasharray: 4 4,opacity: 0.5")
    return "\n".join(lines)


def _box(workflow: Workflow, index: int, worker: str, response: str) -> str:
    step = workflow.steps[index]
    ordinal = f"Model {step.worker}"
    head = ordinal if worker == ordinal else f"{ordinal} · {worker}"
    label = f"<b>{index + 1} · {_label(head, 40)}</b><br/>{_label(step.subtask, 90)}"
    return f"{label}<br/><i>{_label(response, 60)}</i>" if response else label


def _label(text: str, length: int) -> str:
    """Text for a quoted Mermaid label: Mermaid's own entities for whatever it would read as syntax."""
    return "".join(_ENTITIES.get(character, character) for character in cut(one_line(text), length))
