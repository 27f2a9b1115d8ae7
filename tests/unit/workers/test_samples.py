"""Shared worker answers: precaching, training, evaluation and serving share them; repeated steps, and questions asked
again to detect drift, do not. The sample's index and the temperature reach the embedded workers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import date
from itertools import product
from pathlib import Path

import pytest

from ops.benchmarks.problem_files import write_problems
from ops.conductor.rollout import execute_rollouts
from ops.config import Drift, Evaluation, Pool, Setup, Worker, load_pool, load_recipe
from ops.core.messages import Message, Namespace, Sample
from ops.core.problem import Problem
from ops.core.response import Response
from ops.core.response_rows import response_file
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.evaluation.method import Method
from ops.evaluation.runner import evaluate_method
from ops.precaching.precache import build_solo_messages, precache_worker, write_responses
from ops.retraining.drift import DayClient, ask_workers_again
from ops.store import cache_key
from ops.synthetic.generalists import respond
from ops.synthetic.problems import generate_problems
from ops.workers.client import WorkerClient
from ops.workflow.execution import execute_workflow
from ops.workflow.grammar import SOLVE_SUBTASK, Step, Workflow
from ops.workflow.team import Team
from tests.unit.workers.conftest import ask

SOLVER = Worker.model_validate(
    {"name": "solver", "model": "local/solver", "temperature": 0.7, "price": {"input": 5.0, "output": 20.0}}
)
AGAIN = Workflow((Step(0, SOLVE_SUBTASK), Step(0, SOLVE_SUBTASK), Step(0, SOLVE_SUBTASK), Step(0, "Vote.", "all")))
"""Four calls: three samples of one prompt, and one call that sees them."""


@pytest.fixture
def problems() -> list[Problem]:
    return generate_problems("math500", "train", 8, 1)


def live(client: WorkerClient) -> int:
    """Return the number of calls since the last query."""
    before, client.counts.live = client.counts.live, 0
    return before


def test_precaching_training_evaluation_and_baselines_share_first_answers(
    problems: list[Problem], client: WorkerClient
) -> None:
    team, alone = Team((SOLVER,), client), Workflow.single(0)
    asyncio.run(precache_worker(problems, SOLVER, client, samples=2))
    assert live(client) == 2 * len(problems)
    for repeat in (0, 1):  # of both training and evaluation
        asyncio.run(execute_rollouts([alone.render()] * len(problems), problems, team, sample=repeat))
    asyncio.run(evaluate_method(Method.static(alone), problems, team, Evaluation(repeats=2)))
    assert live(client) == 0


def test_repeated_steps_and_equal_branches_share_their_further_answers(
    problems: list[Problem], client: WorkerClient
) -> None:
    team = Team((SOLVER,), client)
    asyncio.run(evaluate_method(Method.samples(Workflow.single(0), 3), problems, team, Evaluation(repeats=1)))
    assert live(client) == 3 * len(problems)
    asyncio.run(execute_rollouts([AGAIN.render()] * len(problems), problems, team))
    assert live(client) == len(problems), "the votes alone"


def test_questions_asked_again_find_nothing_that_workflows_were_answered(
    tmp_path: Path, problems: list[Problem], client: WorkerClient
) -> None:
    recipe = load_recipe(Workspace.find().root / "config", "quickstart")
    setup = Setup(Workspace(tmp_path), recipe, Pool(name="asked", workers=(SOLVER,)))
    write_problems(setup.workspace.data / "shortlist.jsonl", problems)
    for benchmark, rows in {"math500": asyncio.run(precache_worker(problems, SOLVER, client))}.items():
        write_responses(rows, response_file(setup.workspace.data / "responses", SOLVER.name, benchmark))
    for number in range(3):
        asyncio.run(
            execute_rollouts([AGAIN.render()] * len(problems), problems, Team((SOLVER,), client), sample=number)
        )
    live(client)
    for day in (2, 3, 4):
        [record] = ask_workers_again(setup, client, Drift(questions=4), date(2026, 1, day))
    assert (record.rounds, len(record.pairs), live(client)) == (3, 12, 12)
    team = Team((SOLVER,), DayClient(client, date(2026, 1, 5)))
    asyncio.run(execute_rollouts([AGAIN.render()] * len(problems), problems, team))
    assert live(client) == 4 * len(problems)


def test_no_two_samples_have_one_key(problems: list[Problem]) -> None:
    samples = [
        Sample(index, repetition, namespace)
        for namespace, index, repetition in product(Namespace, (0, 1, 2, 1_000_000, 2_000_000), (0, 1, 2, 1_000_000))
    ]
    keys = {cache_key(SOLVER.identity, build_solo_messages(problems[0]), sample) for sample in samples}
    assert len(keys) == len(samples)
    assert all(Sample.from_json(sample.as_json()) == sample for sample in samples)


def test_a_number_is_the_index_of_a_first_answer(problems: list[Problem]) -> None:
    messages = build_solo_messages(problems[0])
    assert cache_key(SOLVER.identity, messages, 3) == cache_key(SOLVER.identity, messages, Sample(3))


class Recorder:
    def __init__(self) -> None:
        self.texts: list[str] = []

    async def complete(
        self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0, **_: object
    ) -> Response:
        text = respond(worker.name, messages, sample=sample, temperature=0.7).text
        self.texts.append(text)
        return Response(text, Usage(1, 1), 0.0, 0.0, "stop")


def test_embedded_workers_draw_each_sample_anew() -> None:
    """Repetitions differ from one another as often as first answers do."""
    differ = 0
    for problem in generate_problems("math500", "train", 60, 1):
        recorder = Recorder()
        asyncio.run(execute_workflow(AGAIN, problem.question, Team((SOLVER,), recorder)))
        differ += len(set(recorder.texts[:3])) > 1
    assert differ > 5


# ── the embedded workers ─────────────────────────────────────────────────────

QUESTION = "Ana owns 31 coins. Bo owns 7 more than Ana. Ana hands 5 to Bo. How many does Bo own?"
CHAT = [{"role": "user", "content": f"{QUESTION}\nGive it in \\boxed{{}}.\n\nSubtask: Solve the problem."}]
SAMPLES = range(12)


def apprentice(**settings: float) -> Worker:
    return load_pool(Workspace.find().config, "quickstart").worker("apprentice").model_copy(update=settings)


def test_each_sample_index_has_its_own_repeatable_answer(client: WorkerClient) -> None:
    worker = apprentice()
    first, again = ([ask(client, worker, CHAT, sample).text for sample in SAMPLES] for _ in range(2))
    assert worker.temperature is not None
    assert first == [respond("apprentice", CHAT, sample=n, temperature=worker.temperature).text for n in SAMPLES]
    assert len(set(first)) > 1
    assert again == first
    assert (client.counts.live, client.counts.cached) == (len(SAMPLES), len(SAMPLES))


def test_at_temperature_0_all_samples_agree(client: WorkerClient) -> None:
    worker = apprentice(temperature=0.0)
    assert len({ask(client, worker, CHAT, sample).text for sample in SAMPLES}) == 1
