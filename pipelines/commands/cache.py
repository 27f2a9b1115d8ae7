"""`podium cache`: inspect, show, why-miss, export, prune, verify the store. The work is in `ops.store`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ops.core.errors import DataError
from ops.core.workspace import Workspace
from pipelines.commands.lazy import OrderedGroup
from pipelines.commands.options import AS_JSON, POOL
from pipelines.commands.shown import print_json

if TYPE_CHECKING:
    from ops.core.problem import Problem
    from ops.store import Backend
    from ops.store.misses import Lookup


_KINDS = ("response", "completion", "verdict")
"""The values of `ops.store.Kind`, which is not imported before a command runs."""


@click.group(cls=OrderedGroup)
def cache() -> None:
    """The store of responses, completions and verdicts."""


@cache.command()
@AS_JSON
def inspect(as_json: bool) -> None:
    """Show what is stored, by kind and model: entries, size, age."""
    import time

    from rich.console import Console
    from rich.table import Table

    from ops.store import Kind, open_backend
    from ops.store.admin import holdings

    workspace, now = Workspace.find(), time.time()
    store = open_backend(workspace.cache)
    held = holdings(store)
    if as_json:
        print_json([each._asdict() for each in held])
        return
    table = Table("kind", "model", "entries", "MB", "oldest (days)", "newest (days)", title=_name(workspace, store))
    for each in held:
        ages = (f"{(now - at) / 86_400:.1f}" for at in (each.oldest, each.newest))
        table.add_row(each.kind, each.model, f"{each.entries:,}", f"{each.characters / 1e6:.1f}", *ages)
    Console().print(table)
    responses = [each.entries for each in held if each.kind == Kind.RESPONSE]
    others = sum(each.entries for each in held) - sum(responses)
    said = f"{sum(responses):,} responses of {len(responses)} worker settings"
    click.echo(said + (f", and {others:,} completions and verdicts" if others else ""))


@cache.command()
@click.argument("key")
@AS_JSON
def show(key: str, as_json: bool) -> None:
    """Show one entry, by the beginning of its key."""
    import json
    from datetime import UTC, datetime

    from rich.console import Console
    from rich.markup import escape

    from ops.store import open_backend
    from ops.store.admin import find

    workspace = Workspace.find()
    store = open_backend(workspace.cache)
    entry = find(store, key)
    if entry is None:
        remedy = "Keys are 64 hex digits: why-miss and export give those of responses"
        raise DataError(_name(workspace, store), key, "is not the key of a valid entry", remedy)
    if "messages" not in entry:
        print_json(entry)
        return
    if as_json:
        print_json({**entry, "messages": json.loads(entry["messages"])})
        return
    console = Console(soft_wrap=True)
    texts = {"messages": json.loads(entry.pop("messages")), "text": entry.pop("text")}
    entry["created"] = datetime.fromtimestamp(entry["created"], UTC).isoformat(sep=" ", timespec="seconds")
    for name, value in entry.items():
        console.print(f"[bold]{name}[/]: {escape(str(value))}")
    for message in texts["messages"]:
        console.print(f"[bold]── {escape(message['role'])}[/]\n{escape(message['content'])}")
    console.print(f"[bold]── answer[/]\n{escape(texts['text'])}")


@cache.command()
@click.option("--pool", type=POOL, required=True)
@click.option("--worker", required=True)
@click.option("--benchmark", required=True)
@click.option("--id", "problem_id", required=True)
@click.option("--sample", type=int, default=0, show_default=True)
@AS_JSON
def why_miss(pool: str, worker: str, benchmark: str, problem_id: str, sample: int, as_json: bool) -> None:
    """Say which field of a call differs from the nearest entry."""
    from ops.benchmarks.registry import is_confidential
    from ops.config import load_pool, pool_file
    from ops.precaching.precache import build_solo_messages
    from ops.store import open_cache
    from ops.store.misses import why_miss

    workspace = Workspace.find()
    chosen = load_pool(workspace.config, pool)
    if worker not in chosen.names:
        remedy = f"There are: {', '.join(chosen.names)}"
        raise DataError(pool_file(workspace.config, pool), worker, "is no worker of this pool", remedy)
    messages = build_solo_messages(_problem(workspace, benchmark, problem_id))
    lookup = why_miss(open_cache(workspace.cache), chosen.worker(worker).identity, messages, sample)
    confidential = is_confidential(benchmark)
    if as_json:
        differences = [dict(zip(_DIFFERENCE, row, strict=True)) for row in _differences(lookup, confidential)]
        print_json({"stored": lookup.stored, "differences": differences})
        return
    _print_lookup(lookup, confidential)


_DIFFERENCE = ("field", "asked", "nearest entry")


def _differences(lookup: Lookup, confidential: bool) -> Iterator[tuple[str, str, str]]:
    for field, asked, stored, at in lookup.differences:
        texts = ("(not shown)", "(not shown)") if confidential and at is not None else (asked, stored)
        yield field + (f" at character {at}" if at is not None else ""), *texts


def _print_lookup(lookup: Lookup, confidential: bool) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    if lookup.stored:
        click.echo("it is stored: this call is a hit")
        return
    if lookup.nearest is None:
        click.echo("a miss, and no stored entry has a prompt with the same beginning")
        return
    table = Table(*_DIFFERENCE, title="a miss: what differs from the nearest entry")
    for field, *texts in _differences(lookup, confidential):
        table.add_row(field, *map(escape, texts))
    Console().print(table)


@cache.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--no-texts", is_flag=True, help="Leave prompts and answers out.")
def export(file: Path, no_texts: bool) -> None:
    """Write every sound response to FILE, a Parquet table."""
    from ops.store import open_backend
    from ops.store.admin import export

    written = export(open_backend(Workspace.find().cache), file, texts=not no_texts)
    click.echo(f"{written:,} responses in {file}")


@cache.command()
@click.option("--keep-pool", "keep", type=POOL, multiple=True, help="Keep this pool's responses (repeatable).")
@click.option("--older-than", type=float, metavar="DAYS", help="Only what is older.")
@click.option("--kind", "kinds", type=click.Choice(_KINDS), multiple=True, help="Only this kind (repeatable).")
@click.option("--dry-run", is_flag=True, help="Only count.")
def prune(keep: tuple[str, ...], older_than: float | None, kinds: tuple[str, ...], dry_run: bool) -> None:
    """Delete responses that no pool uses any more, or old entries."""
    from ops.config import load_pool
    from ops.core.parts import CACHE, accept_missing
    from ops.store import Kind, open_backend
    from ops.store.admin import prune

    if not keep and older_than is None:
        raise DataError(
            "cache prune", "arguments", "do not say which entries to remove", "Give --keep-pool or --older-than"
        )
    workspace = Workspace.find()
    pools = [load_pool(workspace.config, name) for name in keep]
    kept = [worker.identity for pool in pools for worker in pool.workers] if keep else None
    store = open_backend(workspace.cache)
    gone = prune(store, kinds=kinds, keep=kept, older_than_days=older_than, dry_run=dry_run)
    if not dry_run:
        accept_missing(workspace, CACHE)  # no later command takes it for a loss
    left = sum(map(store.count, Kind))
    click.echo(f"{gone:,} entries {'would go' if dry_run else 'deleted'}, {left:,} are there")


@cache.command()
@click.option("--repair", is_flag=True, help="Drop the damaged ones: they are asked or made again.")
def verify(repair: bool) -> None:
    """Read every entry and compare its checksum."""
    from ops.core.parts import CACHE, accept_missing
    from ops.store import open_backend
    from ops.store.admin import verify

    workspace = Workspace.find()
    report = verify(open_backend(workspace.cache), repair=repair)
    if repair:  # what could be kept is what the store holds from now on
        accept_missing(workspace, CACHE)
    for kind, key in report.damaged:
        click.echo(f"damaged: {kind} {key}".encode("ascii", "backslashreplace").decode())
    remedy = "; dropped" if repair else "; --repair drops them" if report.damaged else ""
    click.echo(f"{report.entries:,} entries read, {len(report.damaged)} damaged{remedy}")


def _problem(workspace: Workspace, benchmark: str, problem_id: str) -> Problem:
    from ops.benchmarks.problem_files import find_problem
    from ops.core.problem import problem_key

    key = problem_key(benchmark, problem_id)
    files = [workspace.data / "shortlist.jsonl", *sorted((workspace.data / "raw").glob(f"{benchmark}-*.jsonl"))]
    if (problem := find_problem(files, key)) is None:
        remedy = "Materialize raw_problems first, or correct the id"
        raise DataError(workspace.data, key, "is in neither the shortlist nor the raw problems", remedy)
    return problem


def _name(workspace: Workspace, store: Backend) -> str:
    return store.name.removeprefix(f"{workspace.root}/")
