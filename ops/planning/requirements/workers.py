"""The requirements of calls to the workers: keys, models, prices, a sandbox and a budget."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta

from ops.benchmarks.registry import BENCHMARKS
from ops.config import pool_file
from ops.config.base import key_problem
from ops.core.errors import ConfigError
from ops.core.servers import find_invalid_addresses
from ops.core.workspace_parts import find_missing_parts
from ops.grading import GRADERS
from ops.local_models.vllm_server import find_vllm_python
from ops.planning.estimate import add_costs
from ops.planning.recipe_plan import MissingRequirement, RecipePlan, Requirement
from ops.planning.retirement import is_unlisted, retirement_date
from ops.spending.bookings import format_usd
from ops.workers.pool_checks import find_unsent_settings
from ops.workers.providers import find_price

NOTICE_PERIOD = timedelta(days=60)
"""How long in advance a plan reports the retirement of a model or a new price."""


def require_stores(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require that the ledger, the cache and the registry still exist if they held something before."""
    if plan.recipe.can_call_workers and plan.recipe.replay is None:
        for error in find_missing_parts(plan.setup.workspace):
            yield MissingRequirement(error.file, error.problem, error.remedy)


def require_addresses(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require valid addresses in the environment variables of servers."""
    for error in find_invalid_addresses(mlflow=not plan.setup.workspace.rehearsal):
        yield MissingRequirement(error.file, error.problem, error.remedy)


def require_keys(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require the providers' keys in the environment variables named in the pool."""
    if not plan.recipe.can_call_workers:
        return
    by_key: dict[str, dict[str, None]] = {}
    for pool in plan.setup.all_pools.values():
        for worker, key in pool.missing_keys().items():
            by_key.setdefault(key, {})[worker] = None
    for key, workers in by_key.items():
        names = ", ".join(workers)
        holds = f"it {key_problem(key)}: {names} cannot be asked with it"
        why = holds if os.environ.get(key) else f"{names} cannot be asked without it"
        yield MissingRequirement(key, why, "Set it in the environment (see .env.example)")


def require_models(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require that no model of the pool is retired."""
    if not plan.recipe.can_call_workers:
        return
    workers = {worker.model: (worker, pool) for pool in plan.setup.all_pools.values() for worker in pool.workers}
    for worker, pool in workers.values():
        end = retirement_date(worker)
        remedy = f"Take {worker.name} out of the pool {pool.name}, or name its successor there"
        if end is not None and end <= plan.today:
            yield MissingRequirement(f"{worker.model}", f"its provider retired it on {end}", remedy)
        elif end is not None and end <= plan.today + NOTICE_PERIOD:
            days = (end - plan.today).days
            yield MissingRequirement(
                f"{worker.model}", f"its provider retires it on {end}, in {days} days", remedy, refuses=False
            )
        elif end is None and is_unlisted(worker):
            why = "LiteLLM's map does not list it: it may be retired, or newer than the map"
            yield MissingRequirement(
                f"{worker.model}", why, "Check with its provider before you spend money", refuses=False
            )


def require_prices(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require a price for every worker, and report announced changes of prices."""
    yield from _find_unpriced(plan)
    if not plan.recipe.can_call_workers:
        return
    for name, pool in plan.setup.all_pools.items():
        for worker in pool.workers:
            for rates in worker.price.later if worker.price else ():
                if plan.today < rates.since <= plan.today + NOTICE_PERIOD:
                    yield MissingRequirement(
                        f"workers.{worker.name}.price",
                        f"in {pool_file(plan.setup.workspace.config, name)}, it becomes {rates} USD per million tokens "
                        f"on {rates.since}, and this plan is at today's",
                        "Leave room in the budget for calls from that day on",
                        refuses=False,
                    )


def require_sent_settings(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require that LiteLLM sends every setting as the pool states it."""
    if not plan.recipe.can_call_workers:
        return
    for name, pool in plan.setup.all_pools.items():
        for worker in pool.workers:
            for error in find_unsent_settings(worker, pool_file(plan.setup.workspace.config, name)):
                yield MissingRequirement(error.field, f"in {error.file}, {error.problem}", error.remedy)


def require_serving_environment(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require an environment with vLLM for workers that Podium serves."""
    pools = plan.setup.all_pools.values()
    served = list(dict.fromkeys(worker.name for pool in pools for worker in pool.workers if worker.serve))
    if not (served and plan.recipe.can_call_workers):
        return
    try:
        find_vllm_python(plan.setup.workspace)
    except ConfigError as error:
        yield MissingRequirement(error.file, f"{', '.join(served)} is served by vLLM from there", error.remedy)


def require_sandbox(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require the recipe's sandbox if workers' programs are graded."""
    sources = plan.recipe.benchmarks.items()
    programs = [name for name, source in sources if GRADERS[BENCHMARKS[name].grader_name(source)].runs_programs]
    if programs and plan.recipe.grading.isolation == "bubblewrap" and not plan.machine.has_bubblewrap:
        yield MissingRequirement(
            "bubblewrap",
            f"workers' programs and functions that grade ({', '.join(programs)}) run in it",
            "Install it (Debian: `apt-get install bubblewrap`) and allow unprivileged user namespaces",
        )


def require_budget(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Require that the budget covers the run."""
    if not plan.recipe.can_call_workers or any(_find_unpriced(plan)):
        return
    cost, budget = add_costs(plan.stages).usd, plan.recipe.budget
    most = max(plan.stages, key=lambda stage: stage.usd.low)
    if not cost.high:
        return  # no call is left to pay for, because all answers are stored
    run_usd = budget.run_usd - plan.spent_usd
    spent = f", of which {format_usd(plan.spent_usd)} are spent," if plan.spent_usd else ""
    ends = f"{format_usd(cost.low)} to {format_usd(cost.high)}"
    fewer = f"ask less there ({most.name}: {most.calls_formula}, from {format_usd(most.usd.low)})"
    if run_usd < cost.low:
        yield MissingRequirement(
            "budget.run_usd",
            f"its {format_usd(budget.run_usd)}{spent} are less than what the run still costs, {ends}",
            f"Raise it, or {fewer}",
        )
    elif run_usd < cost.expected:
        why = f"its {format_usd(budget.run_usd)}{spent} may end before the run, which still costs {ends}"
        yield MissingRequirement(
            "budget.run_usd", why, f"Raise it, or {fewer}; a run that stops goes on later", refuses=False
        )
    if budget.month_usd is not None and budget.month_usd < cost.low:
        why = f"its {format_usd(budget.month_usd)} are less than the whole run's {ends}"
        yield MissingRequirement(
            "budget.month_usd", why, f"Raise it, {fewer}, or expect the run to last more than a month", refuses=False
        )


def _find_unpriced(plan: RecipePlan) -> Iterator[MissingRequirement]:
    """Yield an entry for each worker that has no price."""
    config, pools = plan.setup.workspace.config, plan.setup.all_pools
    for worker, file in ((worker, pool_file(config, name)) for name, pool in pools.items() for worker in pool.workers):
        try:
            find_price(worker, file)
        except ConfigError as error:
            yield MissingRequirement(error.field, f"in {error.file}, it {error.problem}", error.remedy)


REQUIREMENTS: tuple[Requirement, ...] = (
    require_stores,
    require_addresses,
    require_keys,
    require_models,
    require_prices,
    require_sent_settings,
    require_serving_environment,
    require_sandbox,
    require_budget,
)
"""The checks of this module, in the order in which their results are reported."""
