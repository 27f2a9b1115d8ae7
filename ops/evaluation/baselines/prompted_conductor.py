"""Baseline: the best worker prompted as the Conductor, without any training to write workflows."""

from __future__ import annotations

from ops.config import Prompting
from ops.core.problem import Problem
from ops.evaluation.baseline import workflow_baseline
from ops.evaluation.method import Method, TrainingData, WorkflowAuthor
from ops.workflow.grammar import Parsed, parse
from ops.workflow.prompt import conductor_messages

PROMPTING = Prompting(style="full", few_shots="out_of_distribution", max_steps=5, access="binary")
"""The prompt settings, which do not depend on the recipe's: a small policy trained from scratch reads no instructions.
"""


@workflow_baseline(
    "prompted conductor",
    position=95,
    calls_per_question=lambda workers: 1 + PROMPTING.max_steps,
    source="arXiv:2512.04388, Section 4 (a frontier model prompted as the Conductor)",
    differences="The model is the pool's best worker by the training mix, with its own sampling, and may choose "
    "itself as a"
    " worker; the prompt is ours, with the four examples. A completion that is no workflow is wrong and paid for; the"
    " column's head says how many are workflows. No embedded worker can: 0 in the quickstart.",
)
def prompted_conductor(training_data: TrainingData) -> Method:
    """Let the best worker write workflows, with the Conductor's grammar and executor."""
    offered = len(training_data.team.workers)

    def prompt(problem: Problem) -> str:
        [message] = conductor_messages(problem, offered, PROMPTING, training_data.few_shots)
        return message["content"]

    def read(completion: str) -> Parsed:
        return parse(completion, offered=offered, max_steps=PROMPTING.max_steps, access=PROMPTING.access)

    return Method.authored(
        WorkflowAuthor(training_data.best_worker, prompt, read), training_data.team.names[training_data.best_worker]
    )
