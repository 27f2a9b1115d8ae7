"""What is kept of one question at one repeat: what was written, what it gave, what that cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ops.core.problem import problem_key

NO_WORKFLOW = "no_workflow"
"""Status of a row whose completion gave no workflow: it counts as wrong, and as a format failure."""


class Usage(NamedTuple):
    """The tokens of one response of one worker."""

    worker: str
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True)
class ScoreRow:
    """One question at one repeat: what was written, what it gave, and what that cost.

    `status` is the trace's (`ops.workflow.trace.TraceStatus`) or `NO_WORKFLOW`.
    `steps` counts the workflow's steps; `workers` names those that were run, in the
    order of the steps; `shape` and `pattern` are what `ops.workflow.strategy` reads in it.
    `tokens` are the workers', prompt and completion together. `latency_s` is the workflow's
    critical path. `unscorable`: workers could not be reached, so nothing is known of the
    answer and the row is left out of every mean.
    """

    benchmark: str
    problem_id: str
    repeat: int
    domain: str
    correct: int
    format_ok: bool
    failure: str
    status: str
    steps: int
    workers: tuple[str, ...]
    tokens: int
    cost_usd: float
    latency_s: float
    completion: str
    answer: str
    unscorable: bool
    shape: str = ""
    pattern: str = ""
    usage: tuple[Usage, ...] = ()
    """What each response took, in the order of `workers`, and then what a worker's writing of the workflow took:
    costs are computed from it at any price."""
    rounds: int = 1
    """Completions written, where the Conductor works in rounds."""
    stop: str = ""
    """Why the rounds ended (`ops.workflow.recursion.Stop`); empty where there are none."""
    trace: str = ""
    """The execution's id (`ops.workflow.trace.Trace.id`), the tag `trace` of those that MLflow shows; empty where
    nothing was run, or a worker was asked alone."""

    @property
    def problem_key(self) -> str:
        """What pairs the rows of two systems."""
        return problem_key(self.benchmark, self.problem_id)
