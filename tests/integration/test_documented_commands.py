"""Every target of the Makefile and every command of the README runs once, on a project with a tiny quickstart.

Targets and commands that cannot run here are listed with the reason; a new one must be in one of the two lists.
"""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from pipelines.commands.main import podium
from tests.command import podium as command_of_tests
from tests.integration.documented import ROOT, SHARED, finished, make
from tests.integration.test_documented_studies import LONG

QUESTION = "What is 6 * 7?"
MAKE = {
    "help": (),
    "ask": (f"Q={QUESTION}",),
    "docs": (),
    "terminal": (),
    "selectors": (),
    "scope": (),
    "gate": (),
    "drift": (),
    "forecast": (),
    "forms": (),
    "bench": ("SMALL=1",),
    "verdicts": (),
    "clean": (),
}
"""Target → its variables, in an order in which each finds its inputs."""
MINUTES = ("bench", "forms")
"""Targets that measure for minutes; CI runs the others."""
OF_SHARED_ROWS = ("selectors", "forms")
NOT_HERE = {
    "run": "makes the checkout that the others begin with",
    **dict.fromkeys(LONG, "test_documented_studies.py, in another process of the tests"),
    "landing": "an hour on two cores, and of few problems its best worker has no checked workflow",
    "venv": "made already",
    "distclean": "removes the environment",
    "test": "the tests themselves, in `.ci/run`",
    "damage": "hours: tests/faults/test_damage.py has its most dangerous cells",
    "mutations": "runs the tests of five packages thirty times",
    "test-rest": "in `.ci/run`",
    "test-optional": "in `make test-rest`",
    "soak": "hours, before a release",
    "browser": "in `make test-rest`",
    "lint": "in `.ci/run`",
    "site": "in `.ci/run`; tests/integration/test_site.py",
    "test-local-llm": "in `.ci/run`",
    "dev": "serves until it is stopped: tests/browser",
    "vllm-local": "serves until it is stopped: tests/local_llm",
    "smollm2": "hours on two cores",
    "pretrained": "reads what `make smollm2` trained",
    "real-rows": "an hour on two cores",
    "gold": "minutes of programs: tests/unit/data/test_quality.py",
    "bigcodebench": "gigabytes of libraries",
    "audit": "needs an advisory service",
    "containers": "builds images with podman, and takes minutes",
    "gpu-image": "gigabytes of libraries",
    "fuzz": "installs a fuzzer",
}
PODIUM = (
    "plan quickstart", "plan quickstart --gpus 2x80", "forecast quickstart", "report quickstart", "ledger",
    "data responses quickstart --dry-run", "data profiles", "data benchmarks", "pools show quickstart",
    "pools diff quickstart open", "retrain --dry-run", "drift", "completion bash", "--help",
)  # fmt: skip
"""Further commands in the README and its pages, after `make run`."""
ELSEWHERE = {
    "init": "calls providers: tests/integration/test_first_look.py",
    "run": "by `make run`",
    "ask": "by `make ask`",
    "serve": "serves until it is stopped: tests/integration/test_serving.py",
    "dev": "serves until it is stopped: tests/browser",
}
"""Commands of the README that other tests run."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout after `make run`."""
    return finished(tmp_path_factory.mktemp("commands"))


def test_every_target_is_listed() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert targets == MAKE.keys() | NOT_HERE.keys()


def command_of(line: str) -> str:
    """Return the command's name with its groups, without arguments."""
    path: list[str] = []
    command: click.Command | None = podium
    for word in line.split():
        if not isinstance(command, click.Group) or word.startswith("-"):
            break
        command = command.get_command(click.Context(command), word)
        assert command is not None, f"podium {line} is no command"
        path.append(word)
    return " ".join(path)


def test_every_command_of_the_readme_is_listed() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"(?<!`)`podium ([^`]+)`", readme) + re.findall(r"^podium ([^#\n]+)", readme, re.MULTILINE)
    shown = {command_of(line) for line in lines}
    assert {"init", "plan", "forecast"} <= shown
    assert shown <= {command_of(line) for line in PODIUM} | ELSEWHERE.keys()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_commands_after_a_pipeline_run(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, which imports once what all of them need."""
    monkeypatch.chdir(project)
    monkeypatch.setenv("PODIUM_ROOT", str(project))
    for command in PODIUM:
        status, said = command_of_tests(*command.split()), capsys.readouterr()
        assert status == 0 and said.out and "Traceback" not in said.out + said.err, f"podium {command}:\n{said}"


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "target", [pytest.param(name, marks=pytest.mark.soak) if name in MINUTES else name for name in MAKE]
)
def test_a_target_of_the_makefile(project: Path, target: str) -> None:
    if target in OF_SHARED_ROWS and not SHARED.is_dir():
        pytest.skip("there are no rows in ../shared")
    printed = make(project, target, *MAKE[target])
    if target == "ask":
        assert "answer" in printed
