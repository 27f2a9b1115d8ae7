"""`podium run` as a process: a mistake in its configuration, and Ctrl-C."""

from __future__ import annotations

import re
import signal

import pytest
import yaml

from ops.core.workspace import Workspace
from tests.command import start_run

pytestmark = pytest.mark.slow


def test_a_mistake_in_the_configuration_is_one_line(project: Workspace) -> None:
    recipes = project.config / "recipes"
    values = yaml.safe_load((recipes / "quickstart.yaml").read_text(encoding="utf-8"))
    (recipes / "wrong.yaml").write_text(yaml.safe_dump({**values, "sed": 1}), encoding="utf-8")
    process = start_run(project.root, "wrong")
    printed, _ = process.communicate(timeout=240)
    assert process.returncode == 1
    assert re.fullmatch(r"error: \S+wrong\.yaml: sed: is not a known key\. .*\n", printed)


def test_stopped_by_hand_it_says_how_to_go_on(project: Workspace) -> None:
    process = start_run(project.root, "quickstart")
    assert process.stdout is not None
    while "problems" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=240)
    assert process.returncode == 130, printed
    assert "The same command goes on from here" in printed
    assert "Traceback" not in printed
