"""The workspace's `.env`: read at a command's start, written by `podium init --pool`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from io import StringIO

from ops.core.atomic import replace_atomically, write_text
from ops.core.errors import ConfigError
from ops.core.settings_files import read_settings_text
from ops.core.workspace import Workspace

_HEAD = "# Keys, which `podium` reads at its start; a variable of the environment wins. git ignores this file.\n"


def read_environment_file(workspace: Workspace) -> None:
    """Add the variables of `.env` that have a value and are not in the environment yet.

    Raises `ConfigError` if it is no file that can be read, and for a line that is not an assignment to a variable.
    """
    file = workspace.environment_file
    try:
        assigned = read_settings_text(file)
    except FileNotFoundError:
        return
    from dotenv.parser import parse_stream

    for binding in parse_stream(StringIO(assigned)):
        text, name, value = binding.original.string, binding.key, binding.value
        blank = text[: len(text) - len(text.lstrip())].count("\n")
        where = f"line {binding.original.line + blank}"
        if binding.error or (name is not None and value is None):
            raise ConfigError(file, where, "is not an assignment", "Write NAME=VALUE, or # before a comment")
        if "\0" in text:
            raise ConfigError(file, where, "contains a NUL byte", "Write the line again")
        if name and value:
            os.environ.setdefault(name, value)


def write_environment_file(workspace: Workspace, values: Mapping[str, str]) -> None:
    """Assign variables in `.env`, which only its owner may read, and let git ignore the file.

    An empty value leaves an assignment as it is.
    """
    file = workspace.environment_file
    lines = (read_settings_text(file) if file.exists() else _HEAD).splitlines()
    for variable, value in values.items():
        assigned = [place for place, line in enumerate(lines) if line.partition("=")[0].strip() == variable]
        if not assigned:
            lines.append(f"{variable}={value}")
        elif value:
            lines[assigned[-1]] = f"{variable}={value}"
    ignored = workspace.root / ".gitignore"
    text = read_settings_text(ignored) if ignored.exists() else ""
    if file.name not in text.splitlines():
        write_text(ignored, f"{text.rstrip()}\n{file.name}\n".lstrip())
    file = file.resolve()  # it may be a link
    with replace_atomically(file, mode=file.stat().st_mode & 0o777 if file.exists() else 0o600) as temporary:
        temporary.touch(mode=0o600)
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
