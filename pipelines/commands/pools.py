"""`pools show POOL` and `pools diff OLD NEW`: a pool as a table, and what changed between two."""

from __future__ import annotations

from argparse import Namespace, _SubParsersAction
from typing import Any

from rich.console import Console
from rich.table import Table

from ops.config import load_pool
from ops.core.workspace import Workspace
from ops.workers.pool import difference, pool_rows


def add(commands: _SubParsersAction[Any]) -> None:
    """Add the parsers."""
    what = "a file in config/pools, without .yaml, or NAME:VARIANT"
    actions = commands.add_parser("pools", help="show a pool, or what differs between two").add_subparsers(
        dest="action", required=True
    )
    shown = actions.add_parser("show", help="the workers and the pool's two keys")
    shown.add_argument("pool", help=what)
    shown.set_defaults(run=_show)
    compared = actions.add_parser("diff", help="what must be done to OLD to get NEW")
    compared.add_argument("old", help=what)
    compared.add_argument("new", help=what)
    compared.set_defaults(run=_diff)


def _show(workspace: Workspace, arguments: Namespace) -> None:
    pool = load_pool(workspace.config, arguments.pool)
    head, rows = pool_rows(pool)
    title = f"{pool.name}, answers {pool.answers_key}, prices {pool.prices_key}"
    table = Table(*head, title=title, caption=pool.description)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
    for worker, variable in pool.missing_keys().items():
        print(f"{worker}: {variable} is not set")


def _diff(workspace: Workspace, arguments: Namespace) -> None:
    old, new = (load_pool(workspace.config, name) for name in (arguments.old, arguments.new))
    found = difference(old, new)
    print(found)
    if found:
        print()
        for what, names in (
            ("asked again", found.affects_answers),
            ("priced anew", found.affects_price),
            ("new columns", found.added),
        ):
            print(f"{what}: {', '.join(names) or 'none'}")
        print(f"answers {old.answers_key} → {new.answers_key}, prices {old.prices_key} → {new.prices_key}")
