"""`podium` as tests call it, in this process and in one of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pipelines.commands import main

PODIUM = (sys.executable, "-c", "from pipelines.commands.main import main; main()")
"""The script, with the code of the folder that it runs in, if that has any."""


def podium(*arguments: str) -> int:
    """Run it in this process; its exit code."""
    with pytest.raises(SystemExit) as end:
        main.podium(list(arguments), prog_name="podium")
    return int(end.value.code or 0)


def script(folder: Path) -> Path:
    """Write `podium` as a program into `folder`, which dvc.yaml's stages find on the PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "podium"
    file.write_text(f'#!/bin/sh\nexec "{PODIUM[0]}" -c "{PODIUM[2]}" "$@"\n', encoding="utf-8")
    file.chmod(0o755)
    return file
