"""The embedded problems: sufficient in number, proven, disjoint, and of the stated difficulty."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import replace

import pytest

from ops.benchmarks.registry import BENCHMARKS, training_benchmarks
from ops.config import load_pool
from ops.core.messages import Message
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.grading import grade, worker_prompt
from ops.precaching.precache import build_solo_messages
from ops.quality.gold import grade_gold
from ops.synthetic.families import FAMILIES, Family, ProblemDraft
from ops.synthetic.generalists import SKILLS, respond
from ops.synthetic.problems import choose_split, generate_drafts, generate_problems
from ops.synthetic.reading import parse_task
from ops.synthetic.tools import TOOLS
from ops.workflow.execution import build_worker_messages
from ops.workflow.grammar import Step, Workflow

NAMES = (*TOOLS, *SKILLS)
FEW = {"two_squares": 200}
"""Families with no more questions than this."""
SURE = [family for family in FAMILIES if family.solved_by_tools]
FEW_PROGRAMS = pytest.mark.parametrize("programs", [3, pytest.param(10_000, marks=pytest.mark.soak)])
"""Questions of a family whose answers are programs: each runs in a process."""


def split(family: Family) -> str:
    return "train" if family.benchmark in training_benchmarks() else "test"


def answer(worker: str, messages: list[Message], sample: int = 0) -> str:
    return TOOLS[worker](parse_task(messages)) if worker in TOOLS else respond(worker, messages, sample=sample).text


def run(problem: Problem, solution: tuple[tuple[str, str], ...]) -> str:
    """Return the sequential reading of a chain in which every step reads all earlier ones."""
    steps = [Step(NAMES.index(name), text, "all" if index else "none") for index, (name, text) in enumerate(solution)]
    workflow, responses = Workflow(tuple(steps)), {}
    for index, (worker, _) in enumerate(solution):
        responses[index] = answer(
            worker, build_worker_messages(workflow, index, worker_prompt(problem), responses), index
        )
    return responses[len(solution) - 1]


def some(family: Family, seed: int, count: int, programs: int) -> list[tuple[Problem, ProblemDraft]]:
    """Return `count` problems, at most `programs` of which ask for a program."""
    made = itertools.islice(generate_drafts(family, split(family), seed), count)
    problems = [(as_problem(family, draft), draft) for draft in made]
    return problems[:programs] if problems[0][0].grader == "code" else problems


def as_problem(family: Family, draft: ProblemDraft) -> Problem:
    [shape] = generate_problems(family.benchmark, split(family), 1, 0)
    return replace(
        shape, id="x", question=draft.question, answer=draft.answer, choices=draft.choices, tests=draft.tests
    )


@pytest.mark.parametrize("count", [40, pytest.param(1000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_distinct_proven_problems(family: Family, count: int) -> None:
    count = min(count, FEW.get(family.name, count))
    made = list(itertools.islice(generate_drafts(family, split(family), 3), count))
    assert len({(draft.question, draft.choices) for draft in made}) == count
    assert all(draft.proof[0] == draft.proof[1] for draft in made)


@FEW_PROGRAMS
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_the_known_workflow_solves_it_and_gold_scores_one(family: Family, programs: int) -> None:
    known = some(family, 5, 25, programs if family.solved_by_tools else 5 * programs)
    solved = [grade(problem, run(problem, draft.solution)).correct for problem, draft in known]
    if family.solved_by_tools:  # a wrong rule can explain the examples too; the search then fails as expected
        assert statistics.mean(solved) >= (0.9 if family.name == "from_examples" else 0.96)
    else:
        assert statistics.mean(solved) >= 0.5
    golds = grade_gold([problem for problem, _ in some(family, 5, 25, programs)])
    assert [gold for gold in golds if gold.score != 1] == []


@FEW_PROGRAMS
@pytest.mark.parametrize("family", SURE, ids=lambda family: family.name)
def test_dropping_the_first_step_breaks_a_chain(family: Family, programs: int) -> None:
    chains = [pair for pair in some(family, 7, 20, programs) if len(pair[1].solution) > 1]
    solved = [draft for problem, draft in chains if grade(problem, run(problem, draft.solution[1:])).correct]
    assert solved == []


@pytest.mark.parametrize("count", [8, pytest.param(60, marks=pytest.mark.soak)])
def test_no_single_worker_wins_and_most_problems_need_several(count: int) -> None:
    mix = [problem for name in training_benchmarks() for problem in generate_problems(name, "train", count, 11)]
    for worker in NAMES:
        right = [grade(problem, answer(worker, build_solo_messages(problem))).correct for problem in mix]
        assert statistics.mean(right) <= 0.55
    needs = [
        len(draft.solution)
        for family in FAMILIES
        if family.benchmark in training_benchmarks()
        for draft in itertools.islice(generate_drafts(family, "train", 11), 20)
    ]
    assert statistics.mean(n >= 2 for n in needs) >= 0.4
    assert statistics.mean(n >= 3 for n in needs) >= 0.15


def test_training_and_evaluation_share_no_question_and_seeds_repeat() -> None:
    for name in training_benchmarks():
        train = {problem.question for problem in generate_problems(name, "train", 100, 1)}
        test = {problem.question for seed in (1, 2) for problem in generate_problems(name, "test", 40, seed)}
        assert not train & test
        assert all(choose_split(question) == "train" for question in train)
    first, again = ([generate_problems(name, "test", 12, 4) for name in BENCHMARKS] for _ in range(2))
    assert first == again
    assert generate_problems("mmlu", "train", 12, 4) != generate_problems("mmlu", "train", 12, 5)


def test_the_quickstart_pool_names_every_embedded_worker() -> None:
    pool = load_pool(Workspace.find().config, "quickstart")
    assert sorted(pool.names) == sorted(NAMES)
    prices = {(worker.price.input, worker.price.output) for worker in pool.workers if worker.price}
    assert len(prices) == len(NAMES) == len({worker.latency_s for worker in pool.workers})


def test_the_four_domains_have_four_families_and_the_unseen_two() -> None:
    for name in BENCHMARKS:
        count = sum(family.benchmark == name for family in FAMILIES)
        assert count >= (4 if name in training_benchmarks() else 2)
