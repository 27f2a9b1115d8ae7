"""`cache`: inspect, show, why-miss, export, prune, verify. The work is in `ops.cache`."""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ops.benchmarks.privacy import is_confidential
from ops.benchmarks.store import read_problems
from ops.cache import ResponseCache, open_cache
from ops.cache.admin import export, find, holdings, prune, verify
from ops.cache.misses import Lookup, why_miss
from ops.config import load_pool
from ops.core.errors import DataError
from ops.core.problem import Problem, problem_key
from ops.core.workspace import Workspace
from ops.precaching.precache import solo_messages


def add(commands: _SubParsersAction[Any]) -> None:
    """Add `cache` and what can be done with it."""
    parser = commands.add_parser("cache", help="look after the response cache")
    actions = parser.add_subparsers(dest="action", required=True)

    def action(name: str, run: Callable[[Workspace, Namespace], None], text: str) -> ArgumentParser:
        made: ArgumentParser = actions.add_parser(name, help=text, description=text)
        made.set_defaults(run=run)
        return made

    action("inspect", _inspect, "what is stored, by model: entries, size, age")
    action("show", _show, "one entry, readable").add_argument("key", help="its key, or the beginning of it")
    miss = action("why-miss", _why_miss, "which field of a precaching call's key differs from the nearest entry")
    for name in ("pool", "worker", "benchmark", "id"):
        miss.add_argument(f"--{name}", required=True)
    miss.add_argument("--sample", type=int, default=0)
    out = action("export", _export, "every sound entry, as a Parquet table")
    out.add_argument("file", type=Path)
    out.add_argument("--no-texts", action="store_true", help="leave prompts and answers out")
    rid = action("prune", _prune, "delete what no pool asks for any more, or what is old")
    rid.add_argument("--keep-pool", action="append", help="keep the entries of this pool's workers (repeatable)")
    rid.add_argument("--older-than", type=float, metavar="DAYS")
    rid.add_argument("--dry-run", action="store_true", help="only count")
    sound = action("verify", _verify, "read every entry and compare its checksum")
    sound.add_argument("--repair", action="store_true", help="drop the damaged ones: they are asked again")


def _inspect(workspace: Workspace, arguments: Namespace) -> None:
    cache, now = open_cache(workspace.cache), time.time()
    found = holdings(cache)
    table = Table("model", "entries", "MB", "oldest (days)", "newest (days)", title=_name(workspace, cache))
    for one in found:
        ages = (f"{(now - at) / 86_400:.1f}" for at in (one.oldest, one.newest))
        table.add_row(one.model, f"{one.entries:,}", f"{one.characters / 1e6:.1f}", *ages)
    Console().print(table)
    print(f"{sum(one.entries for one in found):,} entries of {len(found)} worker settings")


def _show(workspace: Workspace, arguments: Namespace) -> None:
    cache = open_cache(workspace.cache)
    entry = find(cache, arguments.key)
    if entry is None:
        remedy = "Keys are 64 hex digits: why-miss and export give them"
        raise DataError(_name(workspace, cache), arguments.key, "is no sound entry's key", remedy)
    console = Console(soft_wrap=True)
    texts = {"messages": json.loads(entry.pop("messages")), "text": entry.pop("text")}
    entry["created"] = datetime.fromtimestamp(entry["created"], UTC).isoformat(sep=" ", timespec="seconds")
    for name, value in entry.items():
        console.print(f"[bold]{name}[/]: {escape(str(value))}")
    for message in texts["messages"]:
        console.print(f"[bold]── {escape(message['role'])}[/]\n{escape(message['content'])}")
    console.print(f"[bold]── answer[/]\n{escape(texts['text'])}")


def _why_miss(workspace: Workspace, arguments: Namespace) -> None:
    pool = load_pool(workspace.config, arguments.pool)
    if arguments.worker not in pool.names:
        where = workspace.config / "pools" / f"{arguments.pool}.yaml"
        raise DataError(where, arguments.worker, "is no worker of this pool", f"There are: {', '.join(pool.names)}")
    problem = _problem(workspace, arguments.benchmark, arguments.id)
    identity = pool.worker(arguments.worker).identity
    lookup = why_miss(open_cache(workspace.cache), identity, solo_messages(problem), arguments.sample)
    _print_lookup(lookup, confidential=is_confidential(arguments.benchmark))


def _print_lookup(lookup: Lookup, *, confidential: bool) -> None:
    if lookup.stored:
        print("it is stored: this call is a hit")
        return
    if lookup.nearest is None:
        print("a miss, and nothing related is stored: no entry's prompt begins like this one's")
        return
    table = Table("field", "asked", "nearest entry", title="a miss: what differs from the nearest entry")
    for one in lookup.differences:
        texts = ("(not shown)", "(not shown)") if confidential and one.at is not None else (one.asked, one.stored)
        table.add_row(one.field + (f" at character {one.at}" if one.at is not None else ""), *map(escape, texts))
    Console().print(table)


def _export(workspace: Workspace, arguments: Namespace) -> None:
    written = export(open_cache(workspace.cache), arguments.file, texts=not arguments.no_texts)
    print(f"{written:,} entries in {arguments.file}")


def _prune(workspace: Workspace, arguments: Namespace) -> None:
    if arguments.keep_pool is None and arguments.older_than is None:
        raise DataError("cache prune", "arguments", "say nothing of what may go", "Give --keep-pool or --older-than")
    pools = arguments.keep_pool and [load_pool(workspace.config, name) for name in arguments.keep_pool]
    cache = open_cache(workspace.cache)
    gone = prune(cache, keep_pools=pools, older_than_days=arguments.older_than, dry_run=arguments.dry_run)
    print(f"{gone:,} entries {'would go' if arguments.dry_run else 'deleted'}, {len(cache):,} are there")


def _verify(workspace: Workspace, arguments: Namespace) -> None:
    found = verify(open_cache(workspace.cache), repair=arguments.repair)
    for key in found.damaged:
        print(f"damaged: {key}")
    remedy = "; dropped" if arguments.repair else "; --repair drops them" if found.damaged else ""
    print(f"{found.entries:,} entries read, {len(found.damaged)} damaged{remedy}")


def _problem(workspace: Workspace, benchmark: str, problem_id: str) -> Problem:
    files = [workspace.data / "shortlist.jsonl", *sorted((workspace.data / "raw").glob(f"{benchmark}-*.jsonl"))]
    for file in files:
        if file.is_file():
            for problem in read_problems(file):
                if problem.key == problem_key(benchmark, problem_id):
                    return problem
    raise DataError(
        workspace.data, problem_key(benchmark, problem_id), "is in neither the shortlist nor the raw problems",
        "Materialize raw_problems first, or mend the id",
    )  # fmt: skip


def _name(workspace: Workspace, cache: ResponseCache) -> str:
    return cache.backend.name.removeprefix(f"{workspace.root}/")
