"""The help of each command: its first sentence, its options, and two examples that can be run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ops.core.installation import resources_folder
from pipelines.commands.help import Command, OrderedGroup
from pipelines.commands.main import podium
from pipelines.commands.options import POOL, RECIPE

FILES = ("answers.jsonl", "completion.txt", "podium.tar", "response.txt")
"""Files that examples name and that exist where somebody runs them."""


def every(command: click.Command, path: tuple[str, ...] = ("podium",)) -> Iterator[tuple[str, click.Command]]:
    """Yield the words and the command, for a command and all commands below it."""
    yield " ".join(path), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from every(below, (*path, name))


COMMANDS = dict(every(podium))


@pytest.mark.parametrize("words", COMMANDS)
def test_the_help_begins_with_a_sentence_and_ends_with_two_examples(words: str) -> None:
    command = COMMANDS[words]
    assert isinstance(command, Command | OrderedGroup)
    # Click keeps the help option of the first context, so that this context names it as `podium` does.
    context = click.Context(command, info_name=words, terminal_width=100, help_option_names=["-h", "--help"])
    text = command.get_help(context)
    said = " ".join((command.help or "").partition("\n\n")[0].split())
    assert re.fullmatch(r"[A-Z][^.:;]+\.", said) and len(said.split()) >= 4, said
    assert len(command.examples) == 2
    (_, first), last = command.examples
    assert words in first
    assert "\nExamples:\n" in text and text.endswith(f"\n  {last[1]}")


@pytest.mark.parametrize("words", COMMANDS)
def test_each_option_is_explained_by_a_sentence(words: str) -> None:
    for option in COMMANDS[words].params:
        if isinstance(option, click.Option):
            assert re.search(r"^[A-Z].* .*\.$", option.help or "", re.DOTALL), f"{words} {option.opts}: {option.help}"


@pytest.mark.parametrize(
    ("words", "sentence", "line"),
    [(words, *example) for words, command in COMMANDS.items() for example in command.examples],  # type: ignore[attr-defined]
)
def test_an_example_calls_the_command_with_arguments_that_it_accepts(
    words: str, sentence: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert re.match(r"[A-Z].*\.$", sentence)
    folder = tmp_path / "workspace"
    folder.mkdir()
    for name in FILES:
        (folder / name).touch()
        (tmp_path / name).touch()
    monkeypatch.chdir(folder)
    called = arguments_of(line)
    parse(podium, "podium", called)


def arguments_of(line: str) -> list[str]:
    """Return the arguments of `podium` in a line of a shell, up to a pipe or a redirection."""
    words = shlex.split(line[line.index("podium ") :].partition(')"')[0])
    ends = (place for place, word in enumerate(words) if word in ("|", ">", ">>"))
    return words[1 : next(ends, len(words))]


def parse(command: click.Command, name: str, arguments: list[str], parent: click.Context | None = None) -> None:
    """Parse the arguments as click does, down to the last command, without executing it."""
    context = command.make_context(name, list(arguments), parent)
    for option in command.params:
        value = context.params.get(option.name or "")
        for given in value if isinstance(value, tuple) else (value,):
            if isinstance(given, str) and option.type in (POOL, RECIPE):
                kind = "pools" if option.type is POOL else "recipes"
                assert (resources_folder() / "config" / kind / f"{given.partition(':')[0]}.yaml").is_file(), given
    if isinstance(command, click.Group):
        below, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        parse(found, below or "", rest, context)
    context.close()
