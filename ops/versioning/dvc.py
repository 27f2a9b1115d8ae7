"""Call DVC (commit, push), and read dvc.lock.

DVC is a program in an environment of its own (`.venv-dvc`), because its dependencies Hydra and OmegaConf need a version
of antlr4's runtime with which Dagster's selections do not work.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ops.config import digest
from ops.config.recipe import Versions
from ops.core.errors import ConfigError, DataError, PodiumError
from ops.core.installation import make_command
from ops.core.settings_files import read_settings_text, read_yaml
from ops.core.workspace import Workspace

LOCK_TIMEOUT_S = 300.0
"""How many seconds a process waits for another's call of DVC. A repository allows one call at a time."""


PROGRAM_VARIABLE = "PODIUM_DVC"
"""The environment variable that names the user's own DVC."""


def find_program(workspace: Workspace) -> str:
    """Return the path of DVC: `$PODIUM_DVC`, the one that `make venv` installs beside the checkout or this environment,
    or the one on the PATH.

    Raises `PodiumError` if there is none.
    """
    if named := os.environ.get(PROGRAM_VARIABLE):
        if path := shutil.which(named):
            return path
        raise PodiumError(f"${PROGRAM_VARIABLE}: {named} is not a program. Name DVC's, or unset it")
    for folder in (workspace.root, Path(sys.prefix).parent):
        if path := shutil.which("dvc", path=folder / ".venv-dvc" / "bin"):
            return path
    if path := shutil.which("dvc"):
        return path
    where = f"neither {workspace.root / '.venv-dvc'} nor the PATH has it"
    install = make_command("venv", "Install DVC in an environment of its own")
    remedy = f"{install}, or name the program in ${PROGRAM_VARIABLE}"
    raise PodiumError(f"DVC is not installed: {where}. {remedy}")


def commit_stages(workspace: Workspace, *stages: str) -> str:
    """Record the files that `stages` have written in dvc.lock and in DVC's cache, without running anything.

    Returns the version of the last stage. Calls of other processes and threads wait for each other. Raises `DataError`
    if the workspace is not a git repository with DVC, a stage is unknown or a file is missing, and `PodiumError` if DVC
    is not installed.
    """
    if not _is_without_git(workspace):
        _require(workspace, ".git", "is no git repository", "Clone the project, or run `git init` there")
    _require(workspace, ".dvc", "has no DVC configuration", "Restore the folder .dvc, or run `dvc init`")
    with lock_dvc(workspace):
        said = _run_dvc(workspace, "commit", "--force", *stages)
        if said is not None:
            if invalid := re.search(r"'\./(dvc\.(?:yaml|lock))' is invalid", said):
                remedy = "Correct it, or restore it with git or from a backup"
                raise DataError(workspace.root / invalid[1], "", "is invalid by DVC's own check", remedy)
            missing = "does not exist" in said or "missing" in said
            remedy = "Materialize the stage's files first" if missing else "Correct that"
            where, problem = f"stage {stages[-1]!r}", f"cannot be committed ({said})"
            raise DataError(workspace.root / "dvc.yaml", where, problem, f"{remedy}, then commit again")
        return read_stage_version(workspace, stages[-1])


def _require(workspace: Workspace, name: str, problem: str, remedy: str) -> None:
    """Raise `DataError` unless the checkout has `name`."""
    if not (workspace.root / name).exists():
        raise DataError(workspace.root, name, problem, remedy)


def push_stages(workspace: Workspace, versions: Versions, *stages: str) -> None:
    """Copy the outputs of `stages` in dvc.lock from DVC's cache to the remote. Files that exist there are skipped.

    Raises `DataError` if there is no such remote or it cannot be written. The data and dvc.lock are unchanged in this
    case.
    """
    remote = ("--remote", versions.remote) if versions.remote else ()
    with lock_dvc(workspace):
        said = _run_dvc(workspace, "push", *remote, *stages)
    if said is not None:
        name = f"remote {versions.remote!r}" if versions.remote else "the default remote"
        remedy = (
            "The data is kept and recorded: correct the remote (`dvc remote list`, `dvc remote add -d NAME URL`) and "
            "run `dvc push`, or set versions.push to false in the recipe"
        )
        raise DataError(
            workspace.root / ".dvc" / "config", name, f"did not accept a copy of {stages[-1]} ({said})", remedy
        )


def read_stage_version(workspace: Workspace, stage: str) -> str:
    """Return the md5 of the stage's only output, or one of the md5s of all outputs in the order of their paths. Raises
    `DataError`."""
    recorded = _read_lock(workspace).get(stage)
    if not recorded or not recorded.get("outs"):
        raise DataError(_lock_file(workspace), f"stage {stage!r}", "is not recorded", "Materialize it first")
    outs = sorted((str(out["path"]), str(out["md5"])) for out in recorded["outs"])
    if len(outs) == 1:
        return outs[0][1]
    text = "\n".join(f"{path} {md5}" for path, md5 in outs)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def is_in_cache(workspace: Workspace, stage: str) -> bool:
    """Return whether DVC's cache holds what dvc.lock records for the stage. Of a folder, the list of its files
    suffices.

    Raises `DataError` if the stage is not recorded, and `ConfigError` if DVC's configuration cannot be read.
    """
    folder = workspace.root / ".dvc"
    own = _read_setting(folder / "config.local", "cache", "dir")
    place = own or _read_setting(folder / "config", "cache", "dir") or "cache"
    read_stage_version(workspace, stage)
    sums = (str(out["md5"]) for out in _read_lock(workspace)[stage]["outs"])
    return all((folder / place / "files" / "md5" / md5[:2] / md5[2:]).is_file() for md5 in sums)


def recorded_revision(workspace: Workspace) -> str:
    """Return twelve hex digits that identify the contents of dvc.lock, whatever their order. Raises `DataError`."""
    return digest(_read_lock(workspace))


def _is_without_git(workspace: Workspace) -> bool:
    """Return whether DVC is configured to work without git, as `podium init` does outside a repository."""
    file = workspace.root / ".dvc" / "config"
    said = _read_setting(file, "core", "no_scm").lower()
    if said not in ("", *ConfigParser.BOOLEAN_STATES):
        problem = f"is not a configuration of DVC (core.no_scm is {said!r})"
        raise ConfigError(file, "", problem, "Correct it, or restore it with git")
    return ConfigParser.BOOLEAN_STATES.get(said, False)


def _read_setting(file: Path, section: str, name: str) -> str:
    """Return a setting of DVC; "" without it. Raises `ConfigError`."""
    configuration = ConfigParser(interpolation=None)
    try:
        configuration.read_string(read_settings_text(file), source=file.name)
        return configuration.get(section, name, fallback="")
    except FileNotFoundError:
        return ""
    except (ConfigParserError, ValueError) as error:
        problem = f"is not a configuration of DVC ({' '.join(str(error).split())})"
        raise ConfigError(file, "", problem, "Correct it, or restore it with git") from None


def _run_dvc(workspace: Workspace, *arguments: str) -> str | None:
    """Run one DVC command. Returns its error message, or None on success."""
    # A separate process (a third of a second), because DVC's Python interface uses the current directory, and changing
    # that would change it for every thread of the caller.
    process = subprocess.run(
        [find_program(workspace), *arguments],
        cwd=workspace.root,
        env={"DVC_SITE_CACHE_DIR": str(workspace.state / "dvc"), **os.environ, "DVC_NO_ANALYTICS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode == 0:
        return None
    errors = re.findall(r"^ERROR: (.+)$", process.stderr, re.MULTILINE)
    return "; ".join(errors) or (process.stderr.strip().splitlines() or ["no reason given"])[0]


@contextmanager
def lock_dvc(workspace: Workspace) -> Iterator[None]:
    """Keep other processes from calling DVC inside the block, so that all writes of the block are recorded together.

    Raises `DataError` if another process's call does not end in time.
    """
    from filelock import FileLock, Timeout

    workspace.state.mkdir(parents=True, exist_ok=True)
    file = workspace.state / "dvc.filelock"
    try:
        with FileLock(file, timeout=LOCK_TIMEOUT_S):
            yield
    except Timeout:
        problem = f"is held by another process for over {LOCK_TIMEOUT_S:.0f} s"
        raise DataError(file, "", problem, "End the process that runs DVC in this workspace") from None


def _read_lock(workspace: Workspace) -> dict[str, dict[str, Any]]:
    file = _lock_file(workspace)
    try:
        stages = read_stages(file)
    except FileNotFoundError:
        raise DataError(file, "", "does not exist", "Materialize a data stage first") from None
    return stages


def read_stages(file: Path) -> dict[str, dict[str, Any]]:
    """Return the stages in dvc.yaml or dvc.lock. Raises `FileNotFoundError`, and `PodiumError` if the file holds
    something else."""
    values = read_yaml(file)
    stages = values.get("stages") if isinstance(values, dict) else None
    if not isinstance(stages, dict) or not all(isinstance(stage, dict) for stage in stages.values()):
        raise DataError(file, "stages", "is not a mapping of stages", "Restore the file with git")
    return stages


def _lock_file(workspace: Workspace) -> Path:
    return workspace.root / "dvc.lock"
