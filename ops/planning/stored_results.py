"""Find which results of a recipe's run are stored already, so that they are not paid for again."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ops.benchmarks.graded import GRADER_KEY
from ops.benchmarks.problem_files import group_by_benchmark, read_evaluation_questions
from ops.conductor.policy import CARD_FILE
from ops.config import Adaptive, Recursive, Setup
from ops.core.errors import DataError
from ops.core.once import InputMismatchError, check_inputs
from ops.core.problem import Problem
from ops.core.response_rows import ResponseRow, load_responses
from ops.evaluation.stored_baselines import list_baseline_stores
from ops.evaluation.stored_scores import COLD_START, CONDUCTOR, list_solo_workers, score_file, scores_key
from ops.planning.estimate import MeasuredUsage, find_cached_calls, plan_precache_calls
from ops.spending.ledger import Ledger, open_ledger
from ops.spending.ledger_store import LEDGER_URL
from ops.store import CACHE_URL, ResponseCache, open_cache
from ops.training.cold_start.base_policy import base_policy_folder
from ops.training.run.checkpoints import CHECKPOINTS, find_last_checkpoint
from ops.training.run.training_run import RunResult, read_curve, run_key

MAX_LOOKUPS = 400
"""The maximum number of cache lookups per worker and benchmark. Of larger benchmarks, evenly spaced problems are looked
up."""
SharesByWorker = Mapping[tuple[str, str], float]
"""The share (0-1) of calls that are still to be made, by (worker, benchmark)."""


@dataclass(frozen=True)
class RemainingShares:
    """The shares (0-1) of a run's calls that remain to be paid for. A missing entry counts as 1."""

    precaching: SharesByWorker = field(default_factory=dict)
    """The share of precaching's calls by (worker, benchmark)."""
    solo: SharesByWorker = field(default_factory=dict)
    """The share of each single worker's calls on test questions, by (worker, benchmark)."""
    cold_start: float = 1.0
    """The share of the cold start's calls."""
    training: float = 1.0
    """The share of the training steps."""
    adaptive: float = 1.0
    """The share of the adaptive stage's steps."""
    recursive: float = 1.0
    """The share of the recursive stage's steps."""
    baselines: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """The share of each baseline's calls, by (baseline, benchmark)."""
    evaluation: Mapping[str, float] = field(default_factory=dict)
    """The share of the policies' workflows by benchmark, averaged over the scored policies."""


def compute_remaining(setup: Setup, shortlist: Sequence[Problem]) -> RemainingShares:
    """Return the shares of the recipe's run that remain, given the stored responses, policies, training runs and
    scores.

    `shortlist` is the recipe's stored candidates. If it is empty, everything counts as remaining.
    """
    if not shortlist:
        return RemainingShares()
    questions = _read_questions(setup)
    with _open_existing_cache(setup) as cache:
        precaching = _remaining_precaching(setup, shortlist, cache)
        alone = _remaining_solo(setup, questions, cache)
    base = _find_base_policy(setup)
    if base is None:
        return RemainingShares(precaching=precaching, solo=alone, baselines=_remaining_baselines(setup, questions))
    recipe, shares, policy = setup.recipe, {"training": 1.0, "adaptive": 1.0, "recursive": 1.0}, base
    stages: list[tuple[str, Adaptive | None, Recursive | None]] = [("training", None, None)] * recipe.is_trained
    stages += [("adaptive", recipe.adaptive, None)] * (recipe.adaptive is not None)
    stages += [("recursive", None, recipe.recursive)] * (recipe.recursive is not None)
    for name, adaptive, recursive in stages:
        run = setup.workspace.runs / run_key(setup, policy, adaptive, recursive)
        shares[name] = remaining_share_of_run(run, (adaptive or recursive or recipe.grpo).steps or recipe.grpo.steps)
        policy = run / "policy"
    return RemainingShares(
        precaching=precaching,
        solo=alone,
        cold_start=0.0,
        baselines=_remaining_baselines(setup, questions),
        evaluation=_remaining_evaluation(setup, questions, base, policy),
        **shares,
    )


def read_measurements(setup: Setup) -> tuple[list[ResponseRow], MeasuredUsage]:
    """Return the precached responses, and the tokens and latencies measured on these responses and on the ledger's
    calls."""
    try:
        rows = load_responses(setup.workspace.data / "responses")
    except DataError:  # precaching will report unreadable tables and make them again
        rows = []
    with open_existing_ledger(setup) as ledger:
        return rows, MeasuredUsage.from_rows(rows, ledger)


@contextmanager
def open_existing_ledger(setup: Setup) -> Iterator[Ledger | None]:
    """Open the ledger if it exists, and yield None otherwise, because a plan does not create it."""
    if not (setup.workspace.ledger.is_file() or os.environ.get(LEDGER_URL)):
        yield None
        return
    with closing(open_ledger(setup.workspace.ledger)) as ledger:
        yield ledger


def remaining_share_of_run(folder: Path, steps: int) -> float:
    """Return the share (0-1) of a training run's steps that remain."""
    try:
        if RunResult.read(folder) is not None:
            return 0.0
        curve = read_curve(folder)
    except DataError:  # the training will repair the damage from its last checkpoint
        return 0.0 if find_last_checkpoint(folder / CHECKPOINTS) else 1.0
    return max(0.0, 1 - curve[-1]["step"] / steps) if curve else 1.0


def find_unscored(
    setup: Setup,
    policy: Path,
    name: str = CONDUCTOR,
    questions: Mapping[str, Sequence[Problem]] | None = None,
    *,
    any_grader: bool = False,
) -> list[str]:
    """Return the benchmarks for which this policy has no stored scores with the current pool and graders.

    `questions` holds the evaluation's questions, which are read from the workspace unless they are given. With
    `any_grader`, scores by another version of a grader count as stored, because their answers are stored and only have
    to be graded again. Raises `DataError` if the questions cannot be read.
    """
    asked = read_evaluation_questions(setup.workspace, setup.recipe) if questions is None else questions
    return [
        benchmark
        for benchmark, own in asked.items()
        if own
        and not _has_scores(
            score_file(setup.workspace, name, policy, benchmark),
            scores_key(setup.for_benchmark(benchmark), policy, own),
            any_grader=any_grader,
        )
    ]


def _has_scores(file: Path, key: Mapping[str, str], *, any_grader: bool = False) -> bool:
    """Return True if the file has scores that were made with these inputs."""
    try:
        check_inputs(file, dict(key), "")
    except InputMismatchError as error:
        return any_grader and error.differing == (GRADER_KEY,)
    except DataError:
        return False
    return True


def _read_questions(setup: Setup) -> dict[str, list[Problem]]:
    try:
        return read_evaluation_questions(setup.workspace, setup.recipe)
    except DataError:  # not all benchmarks are materialized yet
        return {}


def _find_base_policy(setup: Setup) -> Path | None:
    """Return the folder of the recipe's base policy if it exists, and None otherwise."""
    try:
        folder = base_policy_folder(setup)
    except DataError:  # there is no mix, or there are no worker cards, yet
        return None
    return folder if (folder / CARD_FILE).is_file() else None


@contextmanager
def _open_existing_cache(setup: Setup) -> Iterator[ResponseCache | None]:
    """Open the response cache if it exists, and yield None otherwise, because a plan does not create it."""
    if not (setup.workspace.cache.is_dir() or os.environ.get(CACHE_URL)):
        yield None
        return
    with closing(open_cache(setup.workspace.cache)) as cache:
        yield cache


def _remaining_precaching(setup: Setup, shortlist: Sequence[Problem], cache: ResponseCache | None) -> SharesByWorker:
    """Return the share (0-1) of precaching's calls that are not in the cache, by (worker, benchmark).

    If the stored shortlist has fewer problems of a domain than the training mix needs, it was made for another recipe,
    and the remaining problems of the domain are still to be shortlisted and answered.
    """
    curation, there = setup.recipe.curation, Counter(problem.domain for problem in shortlist)
    asked = group_by_benchmark(shortlist)
    known = {
        domain: 1.0 if count >= curation.per_domain else count / (curation.per_domain * curation.shortlist_factor)
        for domain, count in there.items()
    }
    return {
        (worker, name): 1 - (1 - share) * known[asked[name][0].domain]
        for (worker, name), share in _uncached_shares(setup, asked, setup.pool.names, cache).items()
    }


def _uncached_shares(
    setup: Setup,
    problems: Mapping[str, Sequence[Problem]],
    workers: Iterable[str],
    cache: ResponseCache | None,
    samples: int | None = None,
) -> dict[tuple[str, str], float]:
    """Return the share (0-1) of calls that are not in the cache, by (worker, benchmark).

    `samples` is the number of answers per problem. None stands for the number that precaching uses.
    """
    if cache is None:
        return {}
    names, each = list(workers), samples or setup.recipe.precaching.samples
    made: dict[tuple[str, str], float] = {}
    for benchmark, own in problems.items():
        chosen = [setup.pool.worker(name) for name in names]
        step = math.ceil(len(own) * each / MAX_LOOKUPS)
        asks = list(plan_precache_calls(own[:: max(1, step)], chosen, each))
        asked = Counter(ask.worker.name for ask in asks)
        held = Counter(
            ask.worker.name for ask, stored in zip(asks, find_cached_calls(asks, cache), strict=True) if stored
        )
        made |= {(name, benchmark): 1 - held[name] / count for name, count in asked.items()}
    return made


def _remaining_solo(
    setup: Setup, questions: Mapping[str, Sequence[Problem]], cache: ResponseCache | None
) -> dict[tuple[str, str], float]:
    """Return the share (0-1) of the single workers' calls on test questions that are not in the cache."""
    made: dict[tuple[str, str], float] = {}
    setup = setup.for_opponents
    try:
        workers = list_solo_workers(setup)
    except DataError:  # the baseline's worker is unknown until precaching has run
        return made
    for benchmark, own in questions.items():
        asked = setup.for_benchmark(benchmark)
        made |= _uncached_shares(asked, {benchmark: own}, workers, cache, asked.recipe.evaluation.repeats)
    return made


def _remaining_baselines(setup: Setup, questions: Mapping[str, Sequence[Problem]]) -> dict[tuple[str, str], float]:
    """Return 0 for each (baseline, benchmark) with stored scores, and 1 for the others."""
    try:
        there = list_baseline_stores(setup)
    except DataError:  # there is no training mix yet
        return {}
    return {
        (store.entry.name, benchmark): 0.0 if _has_scores(store.file(benchmark), store.key(benchmark, own)) else 1.0
        for store in there
        for benchmark, own in questions.items()
    }


def _remaining_evaluation(
    setup: Setup, questions: Mapping[str, Sequence[Problem]], base: Path, last: Path
) -> dict[str, float]:
    """Return the share (0-1) of the scored policies that have no scores, by benchmark.

    `base` is the policy after the cold start and `last` the policy after the last training stage.
    """
    policies = [(CONDUCTOR, last), *([(COLD_START, base)] if setup.recipe.cold_start is not None else [])]
    missing = [find_unscored(setup, policy, name, questions, any_grader=True) for name, policy in policies]
    return {benchmark: sum(benchmark in each for each in missing) / len(policies) for benchmark in questions}
