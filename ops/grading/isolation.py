"""The wall around programs, and the libraries inside it: bubblewrap, or what a recipe accepts instead."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal, Protocol

from ops.core.errors import ConfigError

Wall = Literal["bubblewrap", "resource_limits"]
_TMP_BYTES = 256 << 20
"""What a program may leave in its own /tmp, which lives in memory and goes with it."""
_SYSTEM = (
    "/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin",
    "/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime",
)  # fmt: skip
_PROJECT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Libraries:
    """The libraries that a program can import, and the folder whose `python` finds them."""

    folders: tuple[str, ...]
    commands: str
    """A folder of commands, first on the program's PATH."""
    home: str = ""
    """The virtual environment, where it is not Podium's own."""


@dataclass
class _Chosen:
    """What this process was told by `configure`; before that, the strictest."""

    wall: Wall = "bubblewrap"
    environments: Mapping[str, Path] = field(default_factory=dict)
    root: Path | None = None
    """The project's folder, where environments lie that no setting names."""
    noted: bool = False


_CHOSEN = _Chosen()


class GradingSettings(Protocol):
    """What a recipe says about grading (`ops.config.Grading`)."""

    @property
    def isolation(self) -> Wall: ...

    @property
    def environments(self) -> Mapping[str, str]: ...


def configure(settings: GradingSettings, root: Path) -> None:
    """Grade by these settings from now on, in this process; `root` is the project's folder.

    Called where a recipe is loaded. A process that never calls it accepts bubblewrap alone.
    """
    _CHOSEN.noted = _CHOSEN.noted and _CHOSEN.wall == settings.isolation
    _CHOSEN.wall = settings.isolation
    _CHOSEN.root = root
    _CHOSEN.environments = {name: root / path for name, path in settings.environments.items()}


def isolation() -> Wall:
    """The wall that stands on this machine: "bubblewrap" where `bwrap` works, else "resource_limits".

    The latter are limits and an audit hook alone: they stop accidents, not a determined attacker.
    """
    return "resource_limits" if _obstacle() else "bubblewrap"


def accepted_wall() -> Wall:
    """The wall that a program is run behind. Raises `ConfigError` where none that is accepted stands."""
    obstacle = _obstacle()
    if not obstacle:
        return "bubblewrap"
    if _CHOSEN.wall == "bubblewrap":
        raise ConfigError(
            "the recipe",
            "grading.isolation",
            f"asks for bubblewrap around programs, which does not work here: {obstacle}",
            "Install it (Debian: `apt-get install bubblewrap`; Fedora: `dnf install bubblewrap`) and allow "
            "unprivileged user namespaces, or accept limits alone, for programs of known origin only: "
            "`grading: {isolation: resource_limits}`",
        )
    if not _CHOSEN.noted:
        _CHOSEN.noted = True
        print(f"note: programs run behind resource limits alone, as the recipe accepts ({obstacle})", file=sys.stderr)
    return "resource_limits"


# ── libraries ────────────────────────────────────────────────────────────────


def libraries(benchmark: str) -> Libraries:
    """What a program of this benchmark is given: the environment made for it where it is there, else Podium's."""
    home = _CHOSEN.environments.get(benchmark) or (_CHOSEN.root and _CHOSEN.root / f".venv-{benchmark}")
    return _environment(home) if home is not None and (home / "pyvenv.cfg").is_file() else own_libraries()


@lru_cache(maxsize=1)
def own_libraries() -> Libraries:
    """Podium's own."""
    folders = tuple(dict.fromkeys(sysconfig.get_paths()[name] for name in ("purelib", "platlib")))
    return Libraries(folders, str(Path(sys.executable).parent))


@lru_cache(maxsize=4)
def _environment(home: Path) -> Libraries:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = home / "lib" / f"python{version}" / "site-packages"
    if not folder.is_dir():
        raise ConfigError(
            "the recipe",
            "grading.environments",
            f"names {home}, which is not an environment of Python {version}",
            "Make it again with the Python that runs Podium: `make bigcodebench PYTHON=…`",
        )
    return Libraries((str(folder),), str(home / "bin"), str(home))


# ── bubblewrap ───────────────────────────────────────────────────────────────


def readable(chosen: Libraries) -> tuple[str, ...]:
    """What a program may read beside its own folder: interpreter, system libraries, its libraries."""
    commands = (chosen.commands, str(Path(chosen.home) / "pyvenv.cfg")) if chosen.home else (chosen.commands,)
    return (*_SYSTEM, sys.base_prefix, *chosen.folders, *commands)


def bubblewrap(folder: str, chosen: Libraries) -> list[str]:
    """The command's beginning: what is readable read-only, `folder` writable, no network, nobody else's processes."""
    binds = [part for place in readable(chosen) for part in ("--ro-bind-try", place, place)]
    # A project below /usr stays hidden, but for its libraries.
    hidden = ["--tmpfs", str(_PROJECT)] if any(_PROJECT.is_relative_to(p) for p in (*_SYSTEM, sys.base_prefix)) else []
    system = 3 * (len(_SYSTEM) + 1)
    return [
        shutil.which("bwrap") or "bwrap", "--unshare-all", "--die-with-parent", "--cap-drop", "ALL",
        "--size", str(_TMP_BYTES), "--tmpfs", "/tmp", *binds[:system], *hidden, *binds[system:],
        "--proc", "/proc", "--dev", "/dev", "--bind", folder, folder, "--chdir", folder,
    ]  # fmt: skip


@lru_cache(maxsize=1)
def _obstacle() -> str:
    """Why bubblewrap does not work here, "" where it does."""
    if shutil.which("bwrap") is None:
        return "there is no `bwrap` on PATH"
    with tempfile.TemporaryDirectory(prefix="podium-") as folder:
        command = [*bubblewrap(folder, own_libraries()), os.path.realpath(sys.executable), "-I", "-S", "-c", "pass"]
        try:
            ended = subprocess.run(
                command, env={}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10, check=False
            )
        except subprocess.TimeoutExpired:
            return "`bwrap` did not end within 10 s"
    return "" if ended.returncode == 0 else (ended.stderr.strip().splitlines() or ["`bwrap` fails"])[-1]
