"""Baseline: the best worker prompted as the Conductor, without any training to write workflows."""

from __future__ import annotations

from ops.config import Prompting
from ops.core.problem import Problem
from ops.evaluation.baseline import asking
from ops.evaluation.method import Author, Known, Method
from ops.workflow.grammar import ParseResult, parse_workflow
from ops.workflow.prompt import build_conductor_messages

PROMPTING = Prompting(style="full", few_shots="out_of_distribution", max_steps=5, access="binary")
"""The prompt settings, independent of the recipe's: a small policy trained from scratch reads no instructions."""


@asking(
    "prompted conductor",
    place=95,
    calls=lambda workers: 1 + PROMPTING.max_steps,
    source="arXiv:2512.04388, Section 4 (a frontier model prompted as the Conductor)",
    differs="The worker is sampled with its own settings and may choose itself for a step. The prompt is Podium's, "
    "with four examples. A completion without a valid workflow counts as wrong and is paid for. The heading "
    "of the column says how many completions are valid. The workers of the synthetic environment cannot write "
    "workflows, so none is valid there.",
)
def prompted_conductor(known: Known) -> Method:
    """The worker that is best on the training questions writes a workflow for each question, without any training."""
    offered = len(known.team.workers)

    def prompt(problem: Problem) -> str:
        [message] = build_conductor_messages(problem, offered, PROMPTING, known.few_shots)
        return message["content"]

    def read(completion: str) -> ParseResult:
        return parse_workflow(completion, offered=offered, max_steps=PROMPTING.max_steps, access=PROMPTING.access)

    return Method.written(Author(known.best, prompt, read), known.team.names[known.best])
