"""Commands and groups whose help ends with examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

Examples = Sequence[tuple[str, str]]
"""Pairs of a sentence and the command line that does what the sentence says."""


class _WithExamples(click.Command):
    """Adds the section "Examples" at the end of a command's help."""

    def __init__(self, *arguments: Any, examples: Examples = (), **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each example below its sentence; a command line is not wrapped, so that it can be copied."""
        super().format_epilog(ctx, formatter)
        if not self.examples:
            return
        with formatter.section("Examples"):
            room = max(formatter.width - formatter.current_indent - 2, 20)
            for place, (sentence, line) in enumerate(self.examples):
                if place:
                    formatter.write_paragraph()
                for part in click.wrap_text(sentence, room).splitlines():
                    formatter.write(f"{'':>{formatter.current_indent}}# {part}\n")
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


class Command(_WithExamples):
    """A command whose help ends with examples: `@click.command(cls=Command, examples=[(sentence, command line)])`."""


class OrderedGroup(_WithExamples, click.Group):
    """A group of such commands, which it lists in the order of their definition, not alphabetically."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> Sequence[str]:
        """Return the commands in that order."""
        return list(self.commands)
