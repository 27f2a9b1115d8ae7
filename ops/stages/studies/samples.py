"""Measure what several workflows for one question could reach: the best of them, and the most frequent answer."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from ops.config import Vote
from ops.config.studies import Samples
from ops.core.problem import Problem
from ops.evaluation.arms import Arm
from ops.evaluation.stored_studies import StudyInputs
from ops.grading.answer_clusters import find_largest_cluster
from ops.results.outcome_rows import OutcomeRow
from ops.stages.studies.policies import answer_with_texts
from ops.stages.study_context import StudyContext

QUARTERS = 4
"""The number of parts into which the share of equal answers is divided."""


def make_arms(name: str, entry: Samples, inputs: StudyInputs, context: StudyContext) -> list[Arm]:
    """Make the arms: one workflow, a second round after it, and the best and the most frequent answer of 2, 4, 8 …
    workflows."""
    asked = {"repeats": entry.samples, "temperature": entry.temperature, "vote": Vote()}
    rows = answer_with_texts(inputs, inputs.last_policy, context, name, list(inputs.questions), **asked)
    problems = {problem.key: problem for own in inputs.questions.values() for problem in own}
    drawn: dict[str, list[OutcomeRow]] = {key: [] for key in problems}
    for row in sorted(rows, key=lambda row: row.repeat):
        drawn[row.problem_key].append(row)
    one = f"one workflow at temperature {entry.temperature:g}"
    made = [Arm(one, [rows]), make_second_round_arm(problems, drawn, one)]
    for count in [count for count in (64, 32, 16, 8, 4, 2) if count <= entry.samples]:
        parts = {key: own[:count] for key, own in drawn.items()}
        best = [_with_total_cost(max(part, key=lambda row: row.correct), part) for part in parts.values()]
        made.append(Arm(f"the best of {count}", [best]))
        if count > 2:  # of two different answers the first counts
            winners = {key: _find_majority(problems[key], part) for key, part in parts.items()}
            voted = [_with_total_cost(part[winners[key][0]], part) for key, part in parts.items()]
            shares = {key: len(each) / count for key, each in winners.items()}
            made.append(
                Arm(f"the most frequent answer of {count}", [voted], extra_columns=_tabulate_calibration(voted, shares))
            )
    return made


def make_second_round_arm(
    problems: Mapping[str, Problem], drawn: Mapping[str, Sequence[OutcomeRow]], baseline_name: str
) -> Arm:
    """Return the arm in which a second workflow replaces the first where the first is less promising.

    A second round sees the question, the first workflow and its answer. The first workflow is replaced if workflows
    like it (same subject, workers and form of the answer) are less often right than all workflows for the subject. Both
    shares are measured on the other half of the questions. `baseline_name` is the arm of single workflows, with which
    this arm is compared.
    """
    halves = {key: place % 2 for place, key in enumerate(drawn)}
    known: dict[tuple[int, str, str], list[int]] = defaultdict(list)
    for key, rows in drawn.items():
        for row in rows:
            for like in ("", _describe_workflow_kind(row)):
                known[halves[key], problems[key].subject, like].append(row.correct)
    runs: list[list[OutcomeRow]] = []
    replaced = []
    for place in range(len(next(iter(drawn.values())))):
        runs.append([])
        for key, rows in drawn.items():
            first, second = rows[place], rows[place - 1]
            fresh, own = (
                known[1 - halves[key], problems[key].subject, like] for like in ("", _describe_workflow_kind(first))
            )
            replaced.append(bool(own) and fmean(own) < fmean(fresh))
            runs[-1].append(_with_total_cost(second, [first, second]) if replaced[-1] else first)
    facts = {"replaced, %": 100 * fmean(replaced)}
    return Arm("a second round that sees the first", runs, {"minus one workflow": baseline_name}, facts)


def _describe_workflow_kind(row: OutcomeRow) -> str:
    """Return what distinguishes workflows for a subject: the workers, and the form of the answer."""
    return " ".join([*row.workers, ":", *re.sub(r"\d+", "#", row.answer).split()[:3]])


def _find_majority(problem: Problem, part: Sequence[OutcomeRow]) -> list[int]:
    return find_largest_cluster(problem, [row.answer or None for row in part]) or [0]


def _with_total_cost(row: OutcomeRow, part: Sequence[OutcomeRow]) -> OutcomeRow:
    """Return the row with the tokens and the cost of all rows in `part`."""
    usage = tuple(use for each in part for use in each.usage)  # prices are computed from it
    return replace(row, repeat=0, cost_usd=sum(each.cost_usd for each in part), usage=usage)


def _tabulate_calibration(voted: Sequence[OutcomeRow], shares: Mapping[str, float]) -> dict[str, float | str]:
    """Return, for each range of the share of equal answers, the share of right answers and the share of questions, in
    %."""
    facts: dict[str, float | str] = {}
    for quarter in range(QUARTERS):
        low, high = quarter / QUARTERS, (quarter + 1) / QUARTERS
        own = [row.correct for row in voted if low < shares[row.problem_key] <= high]
        part = f"{100 * low:.0f} to {100 * high:.0f} % agree"
        facts[f"right, {part}, %"] = 100 * fmean(own) if own else ""
        facts[f"questions, {part}, %"] = 100 * len(own) / len(voted)
    return facts
