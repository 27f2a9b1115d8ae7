"""The data checks of each stage: read the stage's files and check them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ops.benchmarks.graded import read_graded_responses
from ops.benchmarks.problem_files import (
    SPLITS,
    raw_files,
    read_problems,
    read_test_questions,
    select_evaluated_questions,
)
from ops.benchmarks.quarantine import count_failing_gold
from ops.benchmarks.registry import training_domains
from ops.config import Setup
from ops.core.problem import Problem, Split
from ops.core.workspace import Workspace
from ops.quality.gold import check_gold
from ops.quality.problem_checks import DomainBalance, HeldOutQuestions, check_problems
from ops.quality.response_checks import check_responses
from ops.quality.suite import QualityReport


def check_raw_problems(setup: Setup, benchmarks: Iterable[str] | None = None) -> QualityReport:
    """Check that every row of every benchmark's file is well formed, and that no id is in both splits.

    `benchmarks` are those that have been materialized, by default all of the recipe's. A split that the recipe has and
    that has no file is a failure, here and in the other checks of `data/raw`.
    """
    raw = _read_raw_problems(setup, benchmarks)
    return raw.fail_if_files_are_missing(check_problems(raw.problems, name="raw_problems", workspace=setup.workspace))


def check_raw_gold(setup: Setup, benchmarks: Iterable[str] | None = None) -> QualityReport:
    """Check the gold answers of all benchmarks, except programs, which are checked shortly before their use.

    The report counts the rows that were left out for a failing gold answer when they were loaded.
    """
    raw = _read_raw_problems(setup, benchmarks)
    problems = [problem for problem in raw.problems if problem.grader != "code"]
    report = raw.fail_if_files_are_missing(check_gold(problems, name="raw_problems_gold", workspace=setup.workspace))
    return replace(report, set_aside=raw.failing_gold)


def check_evaluation_programs(setup: Setup, benchmarks: Iterable[str] | None = None) -> QualityReport:
    """Check that the reference programs of the evaluation questions pass their own tests in this machine's sandbox."""
    raw, questions = _read_raw_problems(setup, benchmarks, splits=("test",)), defaultdict(list)
    for problem in raw.problems:
        if problem.grader == "code":
            questions[problem.benchmark].append(problem)
    programs = [each for name, own in questions.items() for each in select_evaluated_questions(own, setup.recipe, name)]
    return raw.fail_if_files_are_missing(check_gold(programs, name="evaluation_programs", workspace=setup.workspace))


def check_shortlist(setup: Setup) -> QualityReport:
    """Check that the shortlist has enough problems in each domain, that they are well formed, and that none repeats an
    evaluation question."""
    return check_problems(
        read_problems(setup.workspace.data / "shortlist.jsonl"),
        balance=DomainBalance(training_domains(setup.recipe.benchmarks), at_least=setup.recipe.curation.per_domain),
        held_out=_read_held_out_questions(setup),
        require_distinct=True,
        name="shortlist",
        workspace=setup.workspace,
    )


def check_shortlist_gold(workspace: Workspace) -> QualityReport:
    """Check the gold answers of the shortlist, including programs, before any worker is paid."""
    problems = read_problems(workspace.data / "shortlist.jsonl")
    return check_gold(problems, name="shortlist_gold", workspace=workspace)


def check_worker_responses(setup: Setup) -> QualityReport:
    """Check that the stored responses answer the stored shortlist."""
    return check_responses(
        read_graded_responses(setup.workspace.data / "responses"),
        read_problems(setup.workspace.data / "shortlist.jsonl"),
        setup.pool.names,
        setup.recipe.precaching.samples,
        workspace=setup.workspace,
    )


def check_training_mix(setup: Setup) -> QualityReport:
    """Check that the training mix is balanced, well formed and free of repetitions, and that it repeats no evaluation
    question."""
    return check_problems(
        read_problems(setup.workspace.data / "training_mix.jsonl"),
        balance=DomainBalance(training_domains(setup.recipe.benchmarks), exactly=setup.recipe.curation.per_domain),
        held_out=_read_held_out_questions(setup),
        require_distinct=True,
        name="training_mix",
        workspace=setup.workspace,
    )


def check_training_mix_gold(workspace: Workspace) -> QualityReport:
    """Check the gold answers of the training mix, including programs; a reward that no answer can earn teaches
    nothing."""
    problems = read_problems(workspace.data / "training_mix.jsonl")
    return check_gold(problems, name="training_mix_gold", workspace=workspace)


class _RawProblems(NamedTuple):
    """The problems in `data/raw`, and a sentence for each missing file."""

    problems: list[Problem]
    missing: list[str]
    failing_gold: int = 0

    def fail_if_files_are_missing(self, report: QualityReport) -> QualityReport:
        """Return the report, as failed if a file is missing, because unread rows have not passed."""
        if not self.missing:
            return report
        return replace(report, success=False, failures=[*self.missing, *report.failures])


def _read_raw_problems(
    setup: Setup,
    benchmarks: Iterable[str] | None,
    splits: Sequence[Split] = SPLITS,
) -> _RawProblems:
    raw, failing = _RawProblems([], []), 0
    for name in setup.recipe.benchmarks if benchmarks is None else benchmarks:
        for split, file in raw_files(setup.workspace, setup.recipe, name).items():
            if split not in splits:
                continue
            failing += count_failing_gold(setup.workspace, name, split)
            if file.is_file():
                raw.problems.extend(read_problems(file))
            else:
                where = file.relative_to(setup.workspace.root)
                raw.missing.append(f"{name}: {where} does not exist: materialize raw_problems[{name}] again")
    return raw._replace(failing_gold=failing)


def _read_held_out_questions(setup: Setup) -> HeldOutQuestions:
    by_benchmark = read_test_questions(setup.workspace, setup.recipe)
    problems = [problem for questions in by_benchmark.values() for problem in questions]
    return HeldOutQuestions(problems, setup.recipe.curation.near_duplicate_jaccard)
