"""`podium cache`: inspect, show, export, prune, verify the store. The work is in `ops.store`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ops.core.errors import DataError
from ops.core.workspace import Workspace
from pipelines.commands.help import OrderedGroup
from pipelines.commands.options import AS_JSON, POOL, wide_option
from pipelines.commands.output import print_json, print_table, print_text

if TYPE_CHECKING:
    from ops.store import Backend


_KINDS = ("response", "completion", "verdict")
"""The values of `ops.store.Kind`, which is not imported before a command runs."""


@click.group(
    cls=OrderedGroup,
    examples=(
        ("Show what is stored.", "podium cache inspect"),
        ("Count the responses of workers that the pool quickstart does not use.",
         "podium cache prune --keep-pool quickstart --dry-run"),
    ),
)  # fmt: skip
def cache() -> None:
    """Inspect and clean the store of paid responses.

    The store keeps every response of a worker, so that no call is paid for twice. It also keeps completions of
    policies and the verdicts of graders that take time.
    """


@cache.command(
    examples=(
        ("Show what is stored.", "podium cache inspect"),
        ("Print it for a script.", "podium cache inspect --json"),
    ),
)
@AS_JSON
@wide_option
def inspect(as_json: bool, wide: bool) -> None:
    """Show how many entries the store holds, by kind and model.

    The table also shows their size, and the age of the oldest and the newest entry.
    """
    import time

    from ops.store import Kind, open_backend
    from ops.store.admin import list_contents

    workspace, now = Workspace.find(), time.time()
    store = open_backend(workspace.cache)
    held = list_contents(store)
    if as_json:
        print_json([each._asdict() for each in held])
        return
    head = ("kind", "model", "entries", "MB", "oldest (days)", "newest (days)")
    rows = []
    for each in held:
        ages = (f"{(now - at) / 86_400:.1f}" for at in (each.oldest, each.newest))
        rows.append((each.kind, each.model, f"{each.entries:,}", f"{each.characters / 1e6:.1f}", *ages))
    print_text(f"Store: {_name(workspace, store)}")
    print_text()
    print_table(head, rows, head[2:], wide=wide)
    print_text()
    responses = [each.entries for each in held if each.kind == Kind.RESPONSE]
    others = sum(each.entries for each in held) - sum(responses)
    said = f"{sum(responses):,} responses of {len(responses)} workers, each with its settings"
    print_text(said + (f"; {others:,} completions of policies and verdicts of graders" if others else ""))


@cache.command(
    examples=(
        ("Show the entry whose key begins with 3f9ac1.", "podium cache show 3f9ac1"),
        ("Print it as JSON.", "podium cache show 3f9ac1 --json"),
    ),
)
@click.argument("key")
@AS_JSON
def show(key: str, as_json: bool) -> None:
    """Show one entry of the store.

    KEY is the key of the entry or its beginning. `podium cache export` writes a table with the keys of all responses.
    """
    import json
    from datetime import UTC, datetime

    from rich.console import Console
    from rich.markup import escape

    from ops.store import open_backend
    from ops.store.admin import find_entry

    workspace = Workspace.find()
    store = open_backend(workspace.cache)
    entry = find_entry(store, key)
    if entry is None:
        remedy = "Keys are 64 hex digits: `podium cache export` writes a table with those of responses"
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


@cache.command(
    examples=(
        ("Write all responses into a table.", "podium cache export responses.parquet"),
        ("Write the table without the texts, to share costs and tokens only.",
         "podium cache export responses.parquet --no-texts"),
    ),
)  # fmt: skip
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--no-texts", is_flag=True, help="Leave out the prompts and the answers.")
def export(file: Path, no_texts: bool) -> None:
    """Write all responses into a Parquet table.

    Responses whose checksum is wrong are left out.
    """
    from ops.store import open_backend
    from ops.store.admin import export_responses

    written = export_responses(open_backend(Workspace.find().cache), file, texts=not no_texts)
    print_text(f"{written:,} responses in {file}")


@cache.command(
    examples=(
        ("Count the responses of workers that belong to neither pool.",
         "podium cache prune --keep-pool openai --keep-pool quickstart --dry-run"),
        ("Delete the completions of policies that are older than 90 days.",
         "podium cache prune --older-than 90 --kind completion"),
    ),
)  # fmt: skip
@click.option(
    "--keep-pool", "keep", type=POOL, multiple=True,
    help="Delete the responses of all workers except those of this pool. You can give this option several times.",
)  # fmt: skip
@click.option(
    "--older-than", type=float, metavar="DAYS", help="Delete the entries that are older than this number of days."
)
@click.option(
    "--kind", "kinds", type=click.Choice(_KINDS), multiple=True,
    help="Delete only entries of this kind. You can give this option several times.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Count the entries without deleting them.")
def prune(keep: tuple[str, ...], older_than: float | None, kinds: tuple[str, ...], dry_run: bool) -> None:
    """Delete responses that no pool uses any more, or old entries.

    Give --keep-pool, --older-than or both. With both, an entry is deleted if either of them applies. A deleted response
    is paid for again if a run needs it.
    """
    from ops.config import load_pool
    from ops.core.workspace_parts import CACHE, accept_missing_parts
    from ops.store import Kind, open_backend
    from ops.store.admin import prune_entries

    if not keep and older_than is None:
        raise DataError(
            "cache prune", "arguments", "do not say which entries to remove", "Give --keep-pool or --older-than"
        )
    workspace = Workspace.find()
    pools = [load_pool(workspace.config, name) for name in keep]
    kept = [worker.identity for pool in pools for worker in pool.workers] if keep else None
    store = open_backend(workspace.cache)
    gone = prune_entries(store, kinds=kinds, keep=kept, older_than_days=older_than, dry_run=dry_run)
    if not dry_run:
        accept_missing_parts(workspace, CACHE)  # no later command takes it for a loss
    left = sum(map(store.count, Kind))
    done = f"{gone:,} entries would be deleted of" if dry_run else f"{gone:,} entries deleted. The store now holds"
    print_text(f"{done} {left:,}")


@cache.command(
    examples=(
        ("Look for damaged entries.", "podium cache verify"),
        ("Delete them.", "podium cache verify --repair"),
    ),
)
@click.option(
    "--repair", is_flag=True, help="Delete the damaged entries. A run that needs them computes or pays for them again."
)
def verify(repair: bool) -> None:
    """Check every entry of the store for damage.

    The command reads each entry and compares it with its checksum.
    """
    from ops.core.workspace_parts import CACHE, accept_missing_parts
    from ops.store import open_backend
    from ops.store.admin import verify_entries

    workspace = Workspace.find()
    report = verify_entries(open_backend(workspace.cache), repair=repair)
    if repair:  # what could be kept is what the store holds from now on
        accept_missing_parts(workspace, CACHE)
    for kind, key in report.damaged:
        click.echo(f"damaged: {kind} {key}".encode("ascii", "backslashreplace").decode())
    remedy = " and deleted" if repair else "; --repair deletes them" if report.damaged else ""
    print_text(f"{report.entries:,} entries read, {len(report.damaged)} damaged{remedy}")


def _name(workspace: Workspace, store: Backend) -> str:
    return store.name.removeprefix(f"{workspace.root}/")
