"""Open a client that uses the cache and the ledger of a workspace."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ops.benchmarks.problem_files import read_evaluation_questions, read_problems
from ops.config import Setup
from ops.core.response_rows import load_responses
from ops.core.workspace import Workspace
from ops.core.workspace_parts import check_parts, record_parts
from ops.precaching.stored_profiles import evaluation_folder
from ops.spending.ledger import open_ledger
from ops.store import open_cache
from ops.workers.client import WorkerClient
from ops.workers.live_call import Account

if TYPE_CHECKING:
    from ops.precaching.replay import RecordedResponses


def open_client(setup: Setup, purpose: str) -> WorkerClient:
    """Open a client on the workspace's cache and ledger; its calls are booked for `purpose`.

    The recipe's spending cap applies to `setup.run`. A recipe with a `replay` section gets a client that answers from
    recorded responses. Raises `ConfigError` for an invalid address of a shared cache, and `DataError` for unreadable
    tables to replay, or if a part of the workspace is missing.
    """
    recipe = setup.recipe
    responses, ledger = open_cache(setup.workspace.cache), open_ledger(setup.workspace.ledger)
    account = Account(setup.run, purpose, recipe.budget.run_usd, recipe.budget.month_usd)
    if recipe.replay is None:
        _check_parts_once(setup.workspace)
        record_parts(setup.workspace)
        return WorkerClient(responses, ledger, account, pool_file=setup.pool_file)
    from ops.precaching.replay import ReplayClient

    recorded = _read_recorded_responses(setup)
    return ReplayClient(responses, ledger, account, replay=recipe.replay, recorded=recorded, pool_file=setup.pool_file)


@cache
def _check_parts_once(workspace: Workspace) -> None:
    """Check the workspace's parts at the first call of this process; later they are as this process has left them."""
    check_parts(workspace)


def _read_recorded_responses(setup: Setup) -> RecordedResponses:
    """Read the recorded responses of precaching and of the single workers' evaluation, with their problems."""
    workspace = setup.workspace
    from ops.precaching.replay import RecordedResponses

    if setup.recipe.replay is None or setup.recipe.replay.match == "prompt":
        return RecordedResponses([], [])  # the response cache answers
    shortlist = workspace.data / "shortlist.jsonl"
    problems = read_problems(shortlist) if shortlist.is_file() else []
    rows = load_responses(workspace.data / "responses")
    # Read the answers of the real runs, because a rehearsal does not record any.
    if alone := load_responses(evaluation_folder(Workspace(workspace.root))):
        rows += alone
        for questions in read_evaluation_questions(workspace, setup.recipe).values():
            problems += questions
    return RecordedResponses(rows, problems)
