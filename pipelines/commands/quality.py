"""Data checks on the command line: `podium data check` and `podium data gold`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from ops.core.errors import DataError
from ops.core.workspace import Workspace
from ops.spending.bookings import format_usd
from pipelines.commands.output import print_markdown, print_text

if TYPE_CHECKING:
    from ops.config import Recipe, Setup
    from ops.core.problem import Problem
    from ops.quality.agreement import LabelledAnswer


_SUITE_TITLES = {
    "well_formed": "raw_problems",
    "gold_scores_one": "raw_problems: gold",
    "fit_to_ask_about": "shortlist",
    "whole_and_in_range": "worker_responses",
    "fit_to_train_on": "training_mix",
    "training_mix_gold": "training_mix: gold",
}
"""Check → the name under which the command shows it."""


def check_data(workspace: Workspace, recipe_file: str) -> bool:
    """Print each suite's result and the path of the Data Docs. Returns whether all passed."""
    from ops.quality.suite import docs_folder
    from ops.stages.checks import CHECKS, check_once
    from ops.stages.data import data_files

    passed, setup = True, _load_setup(workspace, recipe_file)
    for check, name in _SUITE_TITLES.items():
        if not all(file.exists() for file in data_files(workspace, CHECKS[check][0])):
            print_text(f"–  {name}: the data does not exist yet")
            continue
        report, _ = check_once(setup, check)
        passed = passed and report.success
        print_text(f"{'✓' if report else '✗'}  {name}: {report.summary}")
    print_text(docs_folder(workspace) / "index.html")
    return passed


def report_gold(workspace: Workspace, recipe_file: str) -> None:
    """Grade every gold answer of `data/raw`; print the report and write it to `.podium/gold.md`."""
    from ops.benchmarks.problem_files import raw_files, read_problems
    from ops.benchmarks.registry import describe_graded_tests
    from ops.core.atomic import write_text
    from ops.grading import find_available_isolation
    from ops.quality.gold import GoldGrades, grade_gold, render_gold_report

    recipe, sets = _load_setup(workspace, recipe_file).recipe, {}
    for name in recipe.benchmarks:
        for split, file in raw_files(workspace, recipe, name).items():
            problems = read_problems(file)
            began = time.monotonic()
            verdicts = grade_gold(problems)
            sets[f"{name}, {split}"] = GoldGrades(
                verdicts, 0, time.monotonic() - began, describe_graded_tests(problems)
            )
    text = render_gold_report(sets, find_available_isolation())
    target = workspace.state / "gold.md"
    write_text(target, f"# Gold answers of the recipe `{recipe.name}`\n\n{text}")
    print_markdown(text)
    print_text(target)


def measure_judges(
    workspace: Workspace, recipe_file: str, answers: Path | None, questions: int, *, dry_run: bool, yes: bool
) -> None:
    """Measure each judge of the recipe against labelled answers, after asking, and keep the result for the gate.

    Raises `DataError` if a judge has no right or no wrong answers to grade.
    """
    from ops.local_models.vllm_server import serve_pool
    from ops.planning.estimate import VERDICT, CallEstimator, PlannedCall, add_costs, estimate_calls
    from ops.precaching.client_setup import open_client
    from ops.quality.agreement import measure_agreement, save_agreement
    from ops.workflow.judging import build_judge_request
    from pipelines.confirmation import confirm_spending

    setup = _load_setup(workspace, recipe_file)
    if not setup.recipe.judges:
        return
    labels = "gold answers" if answers is None else answers.name
    client, costs, todo = open_client(setup.with_account("judges"), "quality"), [], {}
    for name, grader in setup.recipe.judges.items():
        own = todo[name] = _load_labelled_answers(workspace, setup.recipe, name, answers, questions)
        asked = [build_judge_request(each.problem, each.answer) for each in own]
        asks = [PlannedCall(judge, name, messages, grader=VERDICT) for judge, messages in asked]
        costs.append(estimate_calls(asks, client.cache, CallEstimator([grader.judge], pool_file=setup.pool_file), name))
    cost = add_costs(costs)
    print_text(f"judges: {sum(map(len, todo.values()))} labelled answers, {cost.calls.expected:.0f} calls")
    if dry_run:
        print_text(f"These calls would cost about {format_usd(cost.usd.expected)}.")
        return
    confirm_spending(setup, yes, cost.usd)
    for name, grader in setup.recipe.judges.items():
        with serve_pool(setup.all_pools[grader.pool or setup.recipe.pool], workspace):
            found = measure_agreement(name, grader.worker, labels, todo[name], client)
        save_agreement(workspace, grader, found)
        print_text(found)


def _load_labelled_answers(
    workspace: Workspace, recipe: Recipe, benchmark: str, answers: Path | None, questions: int
) -> list[LabelledAnswer]:
    from ops.benchmarks.problem_files import raw_files, read_problems
    from ops.quality.agreement import label_gold_answers, read_labelled_answers

    files = reversed(raw_files(workspace, recipe, benchmark).values())
    problems = [problem for file in files if file.is_file() for problem in read_problems(file)]
    labelled = label_gold_answers(problems, questions) if answers is None else read_labelled_answers(answers, problems)
    if {each.is_right for each in labelled} != {True, False}:
        what = "gold answers that differ" if answers is None else "labelled answers, right ones and wrong ones"
        remedy = "Give labelled answers of the benchmark with --answers FILE"
        raise DataError(answers or workspace.data / "raw", benchmark, f"has no {what}", remedy)
    return labelled


def grade_response(workspace: Workspace, recipe_file: str, key: str, response: str) -> bool:
    """Print the grade of `response` to the problem `key` of `data/raw`. Returns whether it is correct.

    Raises `DataError` for an unknown problem, and `ConfigError` if programs cannot be executed.
    """
    from ops.benchmarks.registry import displayable_reason
    from ops.grading import grade

    problem = _find_problem(workspace, _load_setup(workspace, recipe_file).recipe, key)
    verdict = grade(problem, response)
    print_text(f"{'✓' if verdict.correct else '✗'}  {key}: {displayable_reason(problem.benchmark, verdict)}")
    return verdict.correct


def _find_problem(workspace: Workspace, recipe: Recipe, key: str) -> Problem:
    from ops.benchmarks.problem_files import find_problem, raw_files
    from ops.core.problem import benchmark_of

    name = benchmark_of(key)
    if name not in recipe.benchmarks:
        raise DataError(
            "PROBLEM", key, f"does not belong to a benchmark of the recipe {recipe.name!r}", "Name another recipe"
        )
    if (problem := find_problem(raw_files(workspace, recipe, name).values(), key)) is None:
        raise DataError(workspace.data / "raw", key, "is not there", "Check the key; `podium data raw` loads problems")
    return problem


def _load_setup(workspace: Workspace, recipe_file: str) -> Setup:
    """Return the recipe with its pool, and apply its grading settings to this process."""
    from ops.benchmarks.graded import configure_grading
    from ops.config import Setup

    setup = Setup.read(workspace, recipe_file)
    configure_grading(setup.recipe, workspace.root, workspace.cache)
    return setup
