"""`podium pools`: show a pool, compare two pools, serve the models that Podium hosts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from ops.core.errors import ConfigError
from ops.core.workspace import Workspace
from pipelines.commands.help import OrderedGroup
from pipelines.commands.options import (
    AS_JSON,
    POOL,
    add_yes_option,
    dry_run_option,
    find_workspace_or_defaults,
    wide_option,
)
from pipelines.commands.output import print_json, print_table, print_text
from pipelines.confirmation import check_workspace, confirm

if TYPE_CHECKING:
    from ops.config import Pool, Price

_CHECK_INTERVAL_S = 5.0


@click.group(
    cls=OrderedGroup,
    examples=(
        ("List the pools and the API keys that they need.", "podium pools list"),
        ("Create a pool of two models, named mine.",
         "podium pools new mine openai/gpt-6-luna anthropic/claude-haiku-5-5"),
    ),
)  # fmt: skip
def pools() -> None:
    """Show, create, test, compare and serve pools of models.

    A pool is a file in config/pools that lists the models which a Conductor may ask. POOL is its name without .yaml. A
    name such as paper:unconstrained means the variant unconstrained of the pool paper.
    """


@pools.command(
    "list",
    examples=(
        ("List the pools.", "podium pools list"),
        ("Print the list as JSON.", "podium pools list --json"),
    ),
)
@AS_JSON
@wide_option
def list_pools(as_json: bool, wide: bool) -> None:
    """List the pools and the API keys that are missing."""
    from ops.config import load_pool

    config = find_workspace_or_defaults().config
    every = {file.stem: load_pool(config, file.stem) for file in sorted((config / "pools").glob("*.yaml"))}
    if as_json:
        listed = [
            {
                "pool": name,
                "workers": list(pool.names),
                "missing_keys": list(dict.fromkeys(pool.missing_keys().values())),
                "description": pool.description,
            }
            for name, pool in every.items()
        ]
        print_json(listed)
        return
    rows = [_pool_row(name, pool) for name, pool in every.items()]
    head = ("pool", "workers", "missing API keys", "what it is")
    print_table(head, rows, ("workers",), optional=("workers",), wide=wide)


@pools.command(
    examples=(
        ("Show the pool of OpenAI's models.", "podium pools show openai"),
        ("Print a variant of the paper's pool as JSON.", "podium pools show paper:unconstrained --json"),
    ),
)
@click.argument("pool", type=POOL)
@AS_JSON
@wide_option
def show(pool: str, as_json: bool, wide: bool) -> None:
    """Show the workers of a pool and what is missing to call them.

    The first line also shows two hashes. The answers key changes if a setting changes that can affect an answer, and
    the prices key changes if a price changes.
    """
    from ops.config import load_pool, pool_file
    from ops.config.base import key_problem
    from ops.workers.pool import build_pool_table, list_special_prices
    from ops.workers.pool_checks import find_unsent_settings

    config = find_workspace_or_defaults().config
    chosen = load_pool(config, pool)
    if as_json:
        keys = {"answers_key": chosen.answers_key, "prices_key": chosen.prices_key}
        print_json({**chosen.model_dump(mode="json"), **keys, "missing_keys": chosen.missing_keys()})
        return
    print_text(f"pool {chosen.name}, answers key {chosen.answers_key}, prices key {chosen.prices_key}")
    print_text(chosen.description)
    print_text()
    print_table(*build_pool_table(chosen), optional=("sampling", "tags", "tokens", "limits"), wide=wide)
    if special := list_special_prices(chosen):
        print_text("\nAll prices of these workers, in USD per million tokens (input / output):")
        for line in special:
            print_text(line)
    file, keys = pool_file(config, pool), chosen.missing_keys()
    problems = [f"{name}: {variable} {key_problem(variable)}" for name, variable in keys.items()]
    problems += [str(error) for worker in chosen.workers for error in find_unsent_settings(worker, file)]
    if problems:
        print_text()
    for problem in problems:
        print_text(problem)


def _pool_row(name: str, pool: Pool) -> tuple[str, int, str, str]:
    missing = ", ".join(dict.fromkeys(pool.missing_keys().values()))
    return name, len(pool.workers), missing or "none", pool.description


@pools.command(
    examples=(
        ("Create a pool of two models, named mine.",
         "podium pools new mine openai/gpt-6-luna anthropic/claude-haiku-5-5"),
        ("Create a pool of one model that your own server offers, and state its price.",
         "podium pools new own openai/llama --api-base http://127.0.0.1:8000/v1 --price 0.1/0.5"),
    ),
)  # fmt: skip
@click.argument("name")
@click.argument("models", nargs=-1, required=True, metavar="MODELS")
@click.option("--api-base", metavar="URL", help="Call the models at this address, if the server is your own.")
@click.option("--price", metavar="IN/OUT",
              help="Set the price in US dollars for a million input tokens and a million output tokens, for models "
              "whose price LiteLLM does not know.")  # fmt: skip
def new(name: str, models: tuple[str, ...], api_base: str | None, price: str | None) -> None:
    """Create a pool from a list of models.

    The command writes config/pools/NAME.yaml with one worker for each of MODELS. A model is named as LiteLLM names it:
    provider/model. Settings that a model does not accept are left out. No model is called.
    """
    from ops.workers.new_pool import create_pool
    from ops.workers.providers import find_price

    workspace = Workspace.find()
    made = create_pool(workspace.config, name, models, api_base, _parse_price(price))
    for worker in made.workers:
        price, key = find_price(worker, name), worker.api_key_env or "no key"
        rates = f"{price.input:g} / {price.output:g}"
        print_text(f"{worker.name}: {worker.model}, {rates} USD per million tokens, {key}")
    print_text(f"written to config/pools/{name}.yaml")
    print_text(f"Next        `podium pools ping {name}` calls each worker once")
    print_text(f"            `podium plan first-look --pool {name}` shows what a first comparison costs")


def _parse_price(text: str | None) -> Price | None:
    from pydantic import ValidationError

    from ops.config import Price

    if text is None:
        return None
    try:
        given, answered = (float(each) for each in text.split("/"))
        return Price(input=given, output=answered)
    except (ValueError, ValidationError):
        raise click.BadParameter(f"{text!r} is not INPUT/OUTPUT, for example 0.1/0.5", param_hint="--price") from None


@pools.command(
    examples=(
        ("Call each model of OpenAI's pool once.", "podium pools ping openai"),
        ("Show what this costs at most, without calling them.", "podium pools ping openai --dry-run"),
    ),
)
@click.argument("pool", type=POOL)
@dry_run_option
@add_yes_option
@AS_JSON
def ping(pool: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Call each worker of a pool once, to test it.

    For each worker the command prints the time, the cost and the response, or what went wrong and how to correct it. It
    asks for confirmation before it spends money. The exit code is 1 if a worker does not answer.
    """
    from contextlib import closing

    from ops.config import load_pool, pool_file
    from ops.spending.bookings import format_usd
    from ops.spending.ledger import open_ledger
    from ops.store import open_cache
    from ops.workers import ping as pinging

    workspace = Workspace.find()
    chosen, file = load_pool(workspace.config, pool), pool_file(workspace.config, pool)
    most = pinging.max_ping_usd(chosen, file)
    what = f"One call to each worker of {pool} costs {format_usd(most)} at most"
    if dry_run:
        print_text(f"{what}. Nothing was done")
        return
    check_workspace(workspace)
    if most > 0:
        confirm(what, yes)
    with closing(open_cache(workspace.cache)) as cache, closing(open_ledger(workspace.ledger)) as ledger:
        results = pinging.ping_pool(chosen, file, cache, ledger)
    if as_json:
        print_json([result._asdict() for result in results])
    else:
        print_table(("worker", "seconds", "cost", "response"), [
            (result.worker, f"{result.latency_s:.2f}", format_usd(result.cost_usd), repr(result.said)) if result.ok
            else (result.worker, "–", "–", f"FAILED: {result.said.rstrip('.')}. {result.remedy}")
            for result in results
        ], ("seconds", "cost"), optional=())  # fmt: skip
    if not all(result.ok for result in results):
        raise click.exceptions.Exit(1)


@pools.command(
    examples=(
        ("Compare two pools.", "podium pools diff openai frontier"),
        ("Compare a pool with one of its variants.", "podium pools diff paper paper:unconstrained"),
    ),
)
@click.argument("old", type=POOL)
@click.argument("new", type=POOL)
@AS_JSON
def diff(old: str, new: str, as_json: bool) -> None:
    """Show how two pools differ and what the change requires.

    The command lists the workers of NEW that must be asked again, those whose stored responses only get new prices, and
    those that OLD does not have.
    """
    from ops.config import load_pool
    from ops.workers.pool import compare_pools

    before, after = (load_pool(find_workspace_or_defaults().config, name) for name in (old, new))
    if as_json:
        print_json(compare_pools(before, after))
        return
    _print_difference(before, after)


def _print_difference(old: Pool, new: Pool) -> None:
    from ops.workers.pool import compare_pools

    changes = compare_pools(old, new)
    print_text(changes)
    if not changes:
        return
    print_text()
    for what, names in (
        ("Asked all questions again, since a setting that affects answers changed:", changes.affects_answers),
        ("Stored responses get the new price:", changes.affects_price),
        ("Asked all questions for the first time:", changes.added),
    ):
        print_text(f"{what} {', '.join(names) or 'none'}")
    print_text(f"Answers key: {old.answers_key} → {new.answers_key}")
    print_text(f"Prices key: {old.prices_key} → {new.prices_key}")


@pools.command(
    examples=(
        ("Serve the model of the pool local-llm.", "podium pools serve local-llm"),
        ("See which model that is.", "podium pools show local-llm"),
    ),
)
@click.argument("pool", type=POOL, default="local-llm")
def serve(pool: str) -> None:
    """Serve the models of a pool on this machine with vLLM.

    The command starts a server for each worker of POOL that has a section serve, and runs until you press Ctrl-C or it
    receives SIGTERM. Without it, each run starts and stops these servers itself.
    """
    from ops.config import load_pool, pool_file
    from ops.local_models.vllm_server import is_up, serve_pool
    from pipelines.termination import raise_on_sigterm

    raise_on_sigterm()
    workspace = Workspace.find()
    chosen = load_pool(workspace.config, pool)
    served = [worker for worker in chosen.workers if worker.serve]
    if not served:
        raise ConfigError(
            pool_file(workspace.config, pool), "workers", "none of them has a serve section",
            "Give one to the worker whose model Podium should serve",
        )  # fmt: skip
    print_text(f"Starting {', '.join(worker.name for worker in served)}, which takes about a minute on a CPU …")
    try:
        with serve_pool(chosen, workspace):
            for worker in served:
                print_text(f"{worker.name}: {worker.model.partition('/')[2]} at {worker.api_base}")
            print_text("Press Ctrl-C to stop.")
            while all(is_up(worker) for worker in served):
                time.sleep(_CHECK_INTERVAL_S)
            print_text("A server has ended. Its log is in .podium/vllm.")
    except KeyboardInterrupt:
        print_text("All servers are stopped.")
