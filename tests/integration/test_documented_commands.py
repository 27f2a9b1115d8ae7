"""Every target of the Makefile and every command of the README runs once, on a project with a tiny quickstart.

Targets and commands that cannot run here are listed with the reason; a new one must be in one of the two lists.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
import yaml

from ops.core.workspace import Workspace
from pipelines.commands.main import podium
from tests.command import podium as command_of_tests
from tests.integration.test_lifecycle import GATE, RECIPE

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"
QUESTION = "What is 6 * 7?"
MAKE = {
    "help": (),
    "run": (),
    "ask": (f"Q={QUESTION}",),
    "reproduce": ("SEED=3",),
    "seeds": ("SEEDS=3",),
    "ablations": ("SEEDS=3",),
    "docs": (),
    "terminal": (),
    "selectors": (),
    "gate": (),
    "forms": (),
    "bench": ("SMALL=1",),
    "verdicts": (),
    "clean": (),
}
"""Target → its variables, in an order in which each finds its inputs."""
OF_SHARED_ROWS = ("selectors", "forms")
NOT_HERE = {
    "landing": "an hour on two cores, and of few problems its best worker has no checked workflow",
    "venv": "made already",
    "distclean": "removes the environment",
    "test": "the tests themselves, in `.ci/run`",
    "mutations": "runs the tests of five packages thirty times",
    "test-optional": "in `.ci/run`",
    "soak": "in `.ci/run`",
    "browser": "in `.ci/run`",
    "lint": "in `.ci/run`",
    "test-local-llm": "in `.ci/run`",
    "dev": "serves until it is stopped: tests/browser",
    "vllm-local": "serves until it is stopped: tests/local_llm",
    "smollm2": "hours on two cores",
    "pretrained": "reads what `make smollm2` trained",
    "real-rows": "an hour on two cores",
    "gold": "minutes of programs: tests/unit/data/test_gold_and_pages.py",
    "bigcodebench": "gigabytes of libraries",
    "audit": "needs an advisory service",
    "fuzz": "installs a fuzzer",
}
PODIUM = (
    "plan quickstart", "plan quickstart --gpus 2x80", "forecast quickstart", "report quickstart", "ledger",
    "data responses --recipe quickstart --estimate", "data profiles", "data benchmarks", "pools show quickstart",
    "pools diff quickstart open", "retrain --plan", "probe", "completion bash", "--help",
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
def project(tmp_path_factory: pytest.TempPathFactory, make: Callable[[Path], Workspace]) -> Path:
    """A checkout whose quickstart takes seconds, with one ablation."""
    root = make(tmp_path_factory.mktemp("commands") / "project").root
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "README.md", ".env.example"):
        shutil.copyfile(ROOT / name, root / name)
    for name in ("docs", "tests"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    recipe = {**RECIPE, "name": "quickstart"}
    (root / "config" / "recipes" / "quickstart.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    (root / "config" / "promotion.yaml").write_text(yaml.safe_dump(GATE), encoding="utf-8")
    asking = ["best_single", "five_consensus"]
    study = {"kind": "changes", "title": "Small", "recipe": "quickstart"}
    studies = {"seeds": {**study, "seeds": [3], "temperatures": [0.0, 1.0], "baselines": asking},
               "ablations": {**study, "changes": {"hotter": {"grpo": {"temperature": 0.9}}}}}  # fmt: skip
    (root / "config" / "studies.yaml").write_text(yaml.safe_dump({"studies": studies}), encoding="utf-8")
    if SHARED.is_dir():
        (root.parent / "shared").symlink_to(SHARED)
    return root


def called(project: Path, *command: str) -> str:
    """Return the command's output; it must succeed."""
    done = subprocess.run(
        command, cwd=project, timeout=1500,
        env={**os.environ, "PODIUM_ROOT": str(project), "PODIUM_BENCH_SMALL": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout


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
    assert {"init", "plan", "data profiles"} <= shown
    assert shown <= {command_of(line) for line in PODIUM} | ELSEWHERE.keys()


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("target", MAKE)
def test_a_target_of_the_makefile(
    project: Path, target: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if target in OF_SHARED_ROWS and not SHARED.is_dir():
        pytest.skip("there are no rows in ../shared")
    environment = Path(sys.prefix)
    installed = f"{environment}/.installed"  # assumed to be newer than what it depends on
    printed = called(project, "make", "-o", installed, f"VENV={environment}", target, *MAKE[target])
    if target == "run":
        monkeypatch.chdir(project)
        monkeypatch.setenv("PODIUM_ROOT", str(project))
        for command in PODIUM:  # in this process, which imports once what all of them need
            status, said = command_of_tests(*command.split()), capsys.readouterr()
            assert status == 0 and said.out and "Traceback" not in said.out + said.err, f"podium {command}:\n{said}"
    if target == "ask":
        assert "answer" in printed
