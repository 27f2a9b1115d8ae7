"""Each page of `docs` is followed from top to bottom: its commands are copied, one after another, into a shell.

A block of a page that begins with ```sh holds commands that a reader copies. They are executed here in a checkout whose
recipe `quickstart` takes seconds. The providers OpenAI, Anthropic, Gemini and DeepInfra are simulated on loopback,
their keys are set, and the benchmarks of `first-look` are read from files. A block that cannot be executed here has
the comment `<!-- not run: REASON -->` on the line before it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import yaml

from ops.core.workspace import Workspace
from pipelines.commands.options import EXIT_NOT_PROMOTED
from tests.integration.checkouts import changed, configure
from tests.integration.documented import ROOT, finished, unfinished
from tests.integration.test_first_look import SMALL, generated, read_from_files
from tests.providers import Kind, Provider

FROM_THE_START = ("getting-started.md", "models.md")
"""Pages whose reader has run nothing yet. The reader of another page has followed getting-started.md."""
PAGES = sorted(file.name for file in (ROOT / "docs").glob("*.md"))
PROVIDERS: tuple[Kind, ...] = ("openai", "anthropic", "gemini", "deepinfra")
NOT_RUN = re.compile(r"<!-- not run: \S.* -->")
LIMIT_S = 1500.0
"""Seconds for the commands of a page: a minute on an idle machine."""


def commands_of(page: str) -> str:
    """Return the commands of a page's `sh` blocks as a script in which each stands on its line of the page.

    Raises `ValueError` for a block that is never closed.
    """
    script: list[str] = []
    inside = skipped = False
    fence, before = "", ""
    for line in page.splitlines():
        begins = re.match(r"(```+)(\w*)", line)
        if begins and not fence:
            fence, inside = begins[1], begins[2] == "sh"
            skipped = NOT_RUN.fullmatch(before.strip()) is not None
            script.append("")
        elif fence and line.rstrip() == fence:
            fence = ""
            script.append("")
        else:
            script.append(line if fence and inside and not skipped else "")
        before = line
    if fence:
        raise ValueError("a block of code is never closed")
    return "\n".join(script) + "\n"


def follow(page: Path, project: Path, environment: dict[str, str]) -> str:
    """Execute the commands of a page in a shell whose folder is the project; return what they print.

    A run whose policy the promotion gate does not promote is no failure.
    Raises `AssertionError` with the page, the line and the command that failed.
    """
    commands = commands_of(page.read_text(encoding="utf-8"))
    script = project / ".podium" / page.with_suffix(".sh").name
    script.parent.mkdir(exist_ok=True)
    # The trap stands in the script's first line, because a page does not begin with a command.
    failed = f'echo "{page.name}:$LINENO: $BASH_COMMAND: exit status $status" >&2; exit $status'
    trap = f"trap 'status=$?; [[ $status = {EXIT_NOT_PROMOTED} && $BASH_COMMAND == podium* ]] || {{ {failed}; }}' ERR"
    first, _, rest = commands.partition("\n")
    assert not first, f"{page.name} begins with a command"
    script.write_text(f"set -Euo pipefail; {trap}\n{rest}", encoding="utf-8")
    process = subprocess.Popen(
        ["bash", str(script)], cwd=project, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        printed, _ = process.communicate(timeout=LIMIT_S)
    finally:
        _end_group(process)
    assert process.returncode == 0, printed[-6000:]
    assert "Traceback" not in printed, printed[-6000:]
    return printed


def _end_group(process: subprocess.Popen[str]) -> None:
    """End what the commands have left in the background."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)


def environment_of_a_reader(folder: Path) -> dict[str, str]:
    """Return the variables of a terminal with this environment activated, and no variable that names a project.

    `make` takes this environment for installed.
    """
    folder.mkdir()
    prefix = Path(sys.prefix)
    make = f'exec {shutil.which("make")} -o {prefix}/.installed VENV={prefix} "$@"'
    (folder / "make").write_text(f"#!/bin/sh\n{make}\n", encoding="utf-8")
    (folder / "make").chmod(0o755)
    unwanted = {"PODIUM_ROOT", "DAGSTER_HOME", "MLFLOW_TRACKING_URI", "HF_TOKEN", "MAKEFLAGS", "PYTHONPATH"}
    variables = {name: value for name, value in os.environ.items() if name not in unwanted}
    path = os.pathsep.join((str(folder), str(prefix / "bin"), os.environ["PATH"]))
    return variables | {"PATH": path, "COLUMNS": "120", "HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variables of a reader's terminal, with keys of the simulated providers."""
    folder = tmp_path_factory.mktemp("reader")
    problems = read_from_files(_workspace(folder / "rows"), generated()).problems
    environment = environment_of_a_reader(folder / "bin")
    with ExitStack() as servers:
        for kind in PROVIDERS:
            environment |= servers.enter_context(Provider(kind, problems, latency_s=0.01)).environment
        yield environment


def _workspace(root: Path) -> Workspace:
    shutil.copytree(ROOT / "config", root / "config")
    return Workspace(root)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_followed_by_copying_its_commands(page: str, reader: dict[str, str], tmp_path: Path) -> None:
    text = ROOT / "docs" / page
    if not commands_of(text.read_text(encoding="utf-8")).strip():
        return
    project = tmp_path / "project"
    if page in FROM_THE_START:
        unfinished(project)
    else:
        finished(tmp_path)
    workspace = Workspace(project)
    read_from_files(workspace, generated(), **SMALL)
    pilot = yaml.safe_load((workspace.config / "recipes" / "pilot.yaml").read_text(encoding="utf-8"))
    configure(workspace, {"recipes/pilot": changed(pilot, curation={"per_domain": 4}, evaluation={"questions": 4})})
    (project / ".venv" / "bin").mkdir(parents=True)
    (project / ".venv" / "bin" / "activate").symlink_to(Path(sys.prefix) / "bin" / "activate")
    follow(text, project, reader)


# ── that a wrong command is noticed ──────────────────────────────────────────────

PAGE = """# A page

```sh
podium plan quickstart > plan.txt
greeting=hello
```

<!-- not run: a program that does not exist -->
```sh
no-such-program
```

```text
$ nor this one
```

```sh
echo "$greeting" > said.txt   # a variable of an earlier block
```
"""


@pytest.mark.slow
def test_blocks_are_executed_in_order_in_one_shell(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    _workspace(project := tmp_path / "project")
    shutil.copyfile(ROOT / "dvc.yaml", project / "dvc.yaml")
    follow(page, project, environment_of_a_reader(tmp_path / "bin"))
    assert (project / "said.txt").read_text(encoding="utf-8") == "hello\n"
    assert (project / "plan.txt").stat().st_size > 100


@pytest.mark.parametrize(
    ("wrong", "line"),
    [("podium plna quickstart", 4), ("podium plan quickstart --gpu 2x80", 4), ("cat missing.txt | sort", 4)],
)
def test_a_wrong_command_is_named_with_its_line(wrong: str, line: int, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace("podium plan quickstart > plan.txt", wrong), encoding="utf-8")
    _workspace(project := tmp_path / "project")
    shutil.copyfile(ROOT / "dvc.yaml", project / "dvc.yaml")
    with pytest.raises(AssertionError, match=rf"page\.md:{line}: .*: exit status [12]"):
        follow(page, project, environment_of_a_reader(tmp_path / "bin"))
    assert not (project / "said.txt").exists(), "commands after it are not executed"


def test_a_block_that_is_never_closed_is_noticed() -> None:
    with pytest.raises(ValueError, match="never closed"):
        commands_of("# A page\n\n```sh\npodium status\n")
