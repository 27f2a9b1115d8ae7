"""The table of alerts: the code sends each of them, and each command exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from ops.alerts.catalogue import CATALOGUE, RUN_FAILED, Alert
from ops.config import KINDS
from pipelines.commands import main

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_code_sends_it(name: str) -> None:
    files = [file for package in ("ops", "assets", "pipelines") for file in (ROOT / package).rglob("*.py")]
    words = [re.findall(r"\w+", file.read_text(encoding="utf-8")) for file in files if file.name != "catalogue.py"]
    users = [each for each in words if each.count(name) > 1]  # an import and a use
    assert users, f"{name} is in the table and nothing sends it"


@pytest.mark.parametrize("alert", CATALOGUE.values(), ids=CATALOGUE)
def test_its_kind_is_one_of_the_configuration_and_its_command_exists(alert: Alert) -> None:
    assert alert.kind in KINDS
    if alert.command.startswith("{"):
        return
    _, name, *rest = shlex.split(alert.example)
    command = main.podium.get_command(click.Context(main.podium), name)
    assert command is not None, name
    options = {each for parameter in command.params for each in parameter.opts}
    assert {word for word in rest if word.startswith("--")} <= options


def test_a_command_without_its_values_is_refused() -> None:
    with pytest.raises(KeyError, match="the_same_command"):
        RUN_FAILED.notice("a run failed")
