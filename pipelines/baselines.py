"""Every baseline with its description: a table for docs, and facts for JSON."""

from __future__ import annotations

from inspect import getdoc

from ops.core.documents import format_markdown_table
from ops.evaluation.baseline import BASELINES, Baseline, WorkflowBaseline, needs_every_worker

POOL_SIZES = (2, 9)
"""Sizes of the pools for which the page shows the number of calls."""


def make_baseline_table() -> str:
    """Return every baseline with its calls, its source, and its differences from the authors' version."""
    head = ["baseline", "heading", "what it does", "calls for a question", "source", "how it differs"]
    return format_markdown_table(head, [_baseline_cells(entry) for entry in BASELINES.values()]) + "\n"


def list_baseline_facts() -> list[dict[str, object]]:
    """Return every baseline for JSON."""
    return [
        {
            "baseline": entry.name,
            "title": entry.title,
            "usual": entry.is_default,
            "source": getattr(entry, "source", None),
            "differs": getattr(entry, "differences", None),
        }
        for entry in BASELINES.values()
    ]


def _baseline_cells(entry: Baseline) -> list[str | int | float]:
    own = (f"`{entry.name}`", entry.title, _describe_baseline(entry))
    if not isinstance(entry, WorkflowBaseline):
        whose = "every worker's" if needs_every_worker([entry.name]) else "that worker's"
        return [*own, "no further ones", f"computed from {whose} own answers", "–"]
    few, many = (f"{entry.calls_per_question(workers):.0f}" for workers in POOL_SIZES)
    learning = (
        f", and {entry.learning_calls(POOL_SIZES[1]):,.0f} before to learn"
        if entry.learning_calls(POOL_SIZES[1])
        else ""
    )
    return [*own, f"{few if few == many else f'{few} to {many}'}{learning}", entry.source, entry.differences]


def _describe_baseline(entry: Baseline) -> str:
    """Return the first sentence of the docstring of the baseline's function."""
    function = entry.prepare if isinstance(entry, WorkflowBaseline) else entry.compute
    return (getdoc(function) or "").partition("\n\n")[0]
