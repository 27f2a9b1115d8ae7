"""Score rows of single workers, from their precached responses to the evaluation questions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ops.benchmarks.graded import graded_responses
from ops.benchmarks.store import evaluation_questions
from ops.config import Setup
from ops.core.errors import DataError
from ops.core.once import check_made
from ops.core.rows import ResponseRow, load_responses, response_file
from ops.evaluation.baseline import needs_every_worker
from ops.evaluation.rows import OutcomeRow
from ops.precaching.profiles import best_single
from ops.precaching.stored import evaluation_folder, responses_key
from ops.workers.pool import at_prices


def of_worker(responses: Iterable[ResponseRow], worker: str) -> list[OutcomeRow]:
    """Return the score rows of the named worker; empty if it has no responses."""
    return [OutcomeRow.of_response(row) for row in responses if row.worker == worker]


def asked_alone(setup: Setup) -> tuple[str, ...]:
    """Return the names of the workers whose own answers to the evaluation questions are needed.

    These are all workers of the pool if one of the recipe's baselines needs all of them. Otherwise it is the best
    single worker by the precached responses, with which the promotion gate compares the Conductor. Raises `DataError`
    if the best worker is needed and no responses are precached.
    """
    if needs_every_worker(setup.recipe.evaluation.baselines):
        return setup.pool.names
    folder = setup.workspace.data / "responses"
    precached = [row for row in graded_responses(folder) if row.worker in setup.pool.names]
    if not precached:
        raise DataError(folder, "", "has no responses from which to choose the best worker", "Precache first")
    return (best_single(precached).worker,)


def stored_answers(setup: Setup, workers: Sequence[str]) -> list[ResponseRow]:
    """Read the own responses of these workers to the evaluation questions, at the prices of each benchmark's pool.

    Raises `DataError` if responses to a benchmark are missing or stale.
    """
    rows = []
    setup = setup.of_opponents
    for name, questions in evaluation_questions(setup.workspace, setup.recipe).items():
        asked = setup.asked_on(name)
        for worker in workers if questions else ():
            file = response_file(evaluation_folder(setup.workspace), worker, name)
            key = responses_key(asked.pool.worker(worker), questions, asked.recipe.evaluation.repeats, asked)
            check_made(file, key, f"Materialize baselines for {name}")
            rows += at_prices(load_responses(file), asked.pool)
    return rows
