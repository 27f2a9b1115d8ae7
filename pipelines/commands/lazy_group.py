"""A group of commands that imports a command when it is called and lists commands under headings."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import IO, Any

import click

from ops.core.errors import PodiumError
from pipelines.commands.help import OrderedGroup
from pipelines.commands.output import print_text, wrap_text
from pipelines.termination import exit_stopped, explain_error, find_received_signal

Sections = Mapping[str, Mapping[str, str]]
"""Heading → command → "module:attribute"."""


class CommandError(click.ClickException):
    """A `PodiumError` on stderr: one line, which wraps on a terminal; exit code 1, no traceback."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the error."""
        if file is None:
            message = self.format_message()
            if sys.stderr.isatty():  # a person reads it, in the folder that they are in
                message = message.replace(f"{os.getcwd()}/", "")  # noqa: PTH109 - Path.cwd() is the same call
            print_text(f"error: {message}", err=True)
        else:
            click.echo(f"error: {self.format_message()}", file=file)


class LazyGroup(OrderedGroup):
    """Imports a command's module when it is called, and all modules to list the commands; none of them is slow to
    import."""

    def __init__(self, *arguments: Any, sections: Sections, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.sections = sections
        self._places = {name: place for commands in sections.values() for name, place in commands.items()}

    def list_commands(self, ctx: click.Context) -> Sequence[str]:
        """Return the commands in the order of their headings."""
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command; None if there is none of that name."""
        if (place := self._places.get(cmd_name)) is None:
            return None
        module, _, attribute = place.partition(":")
        command = getattr(import_module(module), attribute)
        self.commands[cmd_name] = command  # suggestions for misspelt names need all names
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Resolve a command as click does; its suggestions cover all names."""
        if args and args[0] not in self._places:
            self._load(ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one list per heading."""
        self._load(ctx)
        width = max(len(name) for name in self._places)
        for heading, names in self.sections.items():
            with formatter.section(heading):
                room = formatter.width - width - 6
                rows = [(f"{name:<{width}}", self.commands[name].get_short_help_str(room)) for name in names]
                formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; turn an error that a user can correct into a `CommandError`, and a signal into its exit
        code."""
        try:
            os.getcwd()  # noqa: PTH109 - Path.cwd() is the same call
        except FileNotFoundError:
            raise CommandError("the current folder was deleted. Go to another one and run the command again") from None
        try:
            return super().invoke(ctx)
        except PodiumError as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            exit_stopped()
        except click.UsageError as error:
            if not sys.stderr.isatty():
                raise
            mark = "error: "  # as wide as the mark that click writes
            message = wrap_text(mark + error.format_message()).removeprefix(mark)
            raise click.UsageError(message, error.ctx or ctx) from error
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception as error:
            if find_received_signal() is not None:  # some libraries turn an interrupted import into another error
                exit_stopped()
            if (line := explain_error(error)) is None:
                raise
            raise CommandError(line) from error

    def _load(self, ctx: click.Context) -> None:
        for name in self._places:
            self.get_command(ctx, name)
