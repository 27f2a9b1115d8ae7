"""`podium run`: a mistake in its configuration, and Ctrl-C in a separate process."""

from __future__ import annotations

import re
import signal

import pytest
import yaml

from ops.core.workspace import Workspace
from tests.command import podium, start_run

pytestmark = pytest.mark.slow


def test_a_mistake_in_the_configuration_is_one_line(
    project: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipes = project.config / "recipes"
    values = yaml.safe_load((recipes / "quickstart.yaml").read_text(encoding="utf-8"))
    (recipes / "wrong.yaml").write_text(yaml.safe_dump({**values, "sed": 1}), encoding="utf-8")
    monkeypatch.setenv("PODIUM_ROOT", str(project.root))
    assert podium("run", "wrong") == 1
    printed = capsys.readouterr()
    assert re.fullmatch(r"error: \S+wrong\.yaml: sed: is not a known key\. .*\n", printed.out + printed.err)


@pytest.mark.long
def test_a_run_stopped_by_hand_prints_the_command_that_continues(project: Workspace) -> None:
    process = start_run(project.root, "quickstart")
    assert process.stdout is not None
    while "problems" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=240)
    assert process.returncode == 130, printed
    assert "The same command goes on from here" in printed
    assert "Traceback" not in printed
