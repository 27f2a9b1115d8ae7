"""Every command in a message exists, and works in the code's own folder."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ops.core import installation
from ops.core.errors import PodiumError
from ops.core.installation import DISTRIBUTION, install_extra_command, make_command, pip_install_command
from ops.release import requirements
from pipelines.commands.main import podium

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCES = sorted(file for layer in ("ops", "assets", "pipelines") for file in (ROOT / layer).rglob("*.py"))
OF_INTEREST = re.compile(r"`(?:podium|make) |pip3? install|podium\[|ops\.core\.installation")
"""A file without a match contains nothing for these tests and need not be parsed."""
PLACEHOLDER = "VALUE"
BUILDERS = {"make_command", "pip_install_command", "install_extra_command"}


def text_of(node: ast.AST) -> str | None:
    """A string constant, or an f-string with a placeholder for each value."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or PLACEHOLDER for part in node.values)
    return None


@cache
def trees() -> list[tuple[Path, ast.Module]]:
    texts = ((file, file.read_text(encoding="utf-8")) for file in SOURCES)
    return [(file.relative_to(ROOT), ast.parse(text)) for file, text in texts if OF_INTEREST.search(text)]


@cache
def messages(tree: ast.Module) -> list[str]:
    """Return the strings of a module except docstrings."""
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [text for node in ast.walk(tree) if id(node) not in inside | said and (text := text_of(node))]


def commands(program: str) -> dict[str, Path]:
    """Return command line in backquotes → a file with it."""
    found: dict[str, Path] = {}
    for file, tree in trees():
        for text in messages(tree):
            for line in re.findall(rf"`({program} [^`]+)`", text):
                found.setdefault(line, file)
    return found


def built() -> Iterator[tuple[Path, str, list[str]]]:
    """Return file, function and arguments of each call of `ops.core.installation`."""
    for file, tree in trees():
        nodes = list(ast.walk(tree))
        froms = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module == "ops.core.installation"]
        imported = {alias.name for node in froms for alias in node.names} & BUILDERS
        for node in nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in imported:
                yield file, node.func.id, [text_of(argument) or PLACEHOLDER for argument in node.args]


PODIUM = commands("podium")
TARGETS = sorted(
    ({line.split()[1] for line in commands("make") if not line.startswith("make -C")}
    | {words[0].split()[0] for _, name, words in built() if name == "make_command"})
    - {PLACEHOLDER}
)


def test_the_search_finds_remedies() -> None:
    assert {"podium init", "podium restore FILE", "podium retrain"} <= set(PODIUM)
    assert {"venv", "vllm-local", "bigcodebench"} <= set(TARGETS)
    assert {name for _, name, _ in built()} == BUILDERS


@pytest.mark.parametrize("line", sorted(PODIUM))
def test_a_command_of_podium_exists_with_its_options(line: str) -> None:
    words = shlex.split(line)[1:]
    command: click.Command = podium
    path: list[str] = []
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words[0])
        if found is None and (words[0] == "…" or words[0].isupper()):  # any of several commands
            return
        assert found is not None, f"{PODIUM[line]}: podium {' '.join(path)} has no command {words[0]}"
        command = found
        path.append(words.pop(0))
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        if word.startswith("--") and word != "--":
            assert word.partition("=")[0] in options | {"--help"}, f"{PODIUM[line]}: {line}"


CHAMPION, RESTORED = "tests/integration/test_champion.py", "tests/integration/test_backup.py"
MISSING = "tests/integration/test_missing_parts.py"
AFTER_A_RUN = "tests/integration/test_documented_commands.py::test_commands_after_a_pipeline_run"
EXECUTED = {
    "alerts test": "tests/unit/alerts/test_alerts.py::test_the_command_sends_a_notice_and_prints_the_result",
    "backup": f"{RESTORED}::test_what_a_user_wrote_is_restored_into_an_empty_folder_and_after_init",
    "cache export": "tests/unit/workers/test_commands.py::test_inspect_show_export_verify",
    "cache verify": "tests/unit/workers/test_commands.py::test_inspect_show_export_verify",
    "data gold": "tests/integration/test_own_graders.py::test_",
    "data raw": "tests/unit/data/test_stages.py::test_commands_run_the_same_stages",
    "dev": "tests/browser/",
    "drift": AFTER_A_RUN,
    "init": f"{MISSING}::test_init_brings_back_what_is_missing",
    "plan": "tests/integration/test_gates.py::test_the_plan_says_the_same_and_ends_with_1",
    "pools ping": "tests/faults/test_ping.py::test_one_line_a_worker_with_latency_cost_and_what_came_back",
    "promote": f"{CHAMPION}::test_the_commands",
    "restore": f"{RESTORED}::test_a_single_part_is_restored_from_the_state_in_which_that_is_advised",
    "restore --only artifacts": f"{CHAMPION}::test_a_restore_of_the_artifacts_is_the_remedy_that_it_is_said_to_be",
    "retrain": AFTER_A_RUN,
    "rollback": f"{CHAMPION}::test_the_commands",
    "run": "tests/integration/test_lifecycle.py::test_it_tells_the_story_to_its_end",
    "status": "tests/integration/test_lifecycle.py::test_commands_say_what_the_run_did",
    "study": "tests/integration/test_documented_studies.py::test_",
    "train": "tests/integration/test_wheel.py::test_",
    "verdict": f"{CHAMPION}::test_the_commands",
}
"""Command that a message names → a test that gives it in a state in which it is named."""


@pytest.mark.parametrize("line", sorted(PODIUM))
def test_a_test_executes_each_command_that_a_message_names(line: str) -> None:
    words = line.split()[1:]
    for count in (3, 2, 1):
        if (test := EXECUTED.get(" ".join(words[:count]).replace("FILE ", ""))) is not None:
            break
    else:
        assert words[0] in ("data", "…") or words[0].isupper(), f"{PODIUM[line]}: no test of `{line}` is listed"
        return
    file, _, name = test.partition("::")
    assert (ROOT / file).exists(), file
    if name:
        assert f"def {name}" in (ROOT / file).read_text(encoding="utf-8"), test


BESIDE_A_VERSION = ("ops/release/model_card.py", "ops/release/requirements.py")
"""Files whose remedies are followed where a registered version is copied, with its own requirements and no Podium."""


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("target", TARGETS)
def test_a_target_of_make_exists(target: str) -> None:
    subprocess.run(["make", "-n", target], cwd=ROOT, stdout=subprocess.DEVNULL, check=True, timeout=60)


def test_install_commands_are_written_in_one_place() -> None:
    for file, tree in trees():
        if str(file) in BESIDE_A_VERSION:
            continue
        for text in messages(tree):
            assert not re.search(r"pip3? install|podium\[", text), f"{file}: use ops.core.installation: {text!r:.80}"


def test_install_commands_name_dependencies_of_the_project() -> None:
    named = {re.split(r"[^A-Za-z0-9_.-]", each)[0].lower() for each in PROJECT["dependencies"]}
    for file, name, words in built():
        if name == "install_extra":
            assert words[0] in PROJECT["optional-dependencies"], f"{file}: no extra {words[0]}"
        elif name == "pip_install":
            for word in words:
                assert word.startswith("-") or word == PLACEHOLDER or word in named, f"{file}: {word} is no dependency"


def words_of(command: str) -> list[str]:
    assert command[0] == command[-1] == "`"
    return shlex.split(command[1:-1])


def test_in_a_checkout_the_commands_work_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (ROOT, tmp_path):
        monkeypatch.chdir(folder)
        python, *words = words_of(pip_install_command("mlflow"))
        assert (folder / python).samefile(sys.executable)
        tried = subprocess.run(
            [python, *words, "--dry-run", "--no-deps", "--no-index"], capture_output=True, text=True, check=False,
            timeout=120,
        )  # fmt: skip
        assert tried.returncode == 0 and "already satisfied: mlflow" in tried.stdout, tried.stderr
        *_, option, place = words_of(install_extra_command("gpu"))
        assert option == "-e" and (folder / place.removesuffix("[gpu]") / "pyproject.toml").is_file()
    assert make_command("venv", "by hand") == f"Run `make -C {ROOT} venv`"


def test_a_wheel_names_its_own_constraints_and_no_makefile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "constraints.txt").write_text("mlflow\n", encoding="utf-8")
    monkeypatch.setattr(installation, "resources_folder", lambda: tmp_path)
    words = words_of(install_extra_command("gpu"))
    assert words[1:] == ["-m", "pip", "install", "-c", str(tmp_path / "constraints.txt"), f"{DISTRIBUTION}[gpu]"]
    assert make_command("venv", "by hand") == "by hand"
    (tmp_path / "constraints.txt").unlink()
    assert words_of(pip_install_command("mlflow"))[1:] == ["-m", "pip", "install", "mlflow"]


def test_the_distribution_has_its_own_name_and_the_command_keeps_its() -> None:
    assert PROJECT["name"] == DISTRIBUTION
    assert PROJECT["scripts"] == {"podium": "pipelines.script:main"}
    shown = CliRunner().invoke(podium, ["--version"], prog_name="podium")
    assert shown.output == f"podium, version {version(DISTRIBUTION)}\n"
    assert installation.resources_folder() == ROOT


def test_a_library_that_a_version_needs_and_is_absent_has_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "find_imported_packages", lambda *_: {"no_such_library"})
    with pytest.raises(PodiumError, match=r"^no_such_library is not installed") as error:
        requirements.list_requirements(ROOT / "mlflow" / "agent.py", ROOT / "ops")
    assert str(error.value).endswith(f"Run {pip_install_command('no_such_library')}")
