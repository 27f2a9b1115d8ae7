"""The isolation of programs and the libraries that they can import: bubblewrap, or the alternative that a recipe
accepts.

Some system calls are refused, because a process has every capability in a user namespace that it makes.
"""

from __future__ import annotations

import os
import secrets
import shutil
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal

from ops.core.errors import ConfigError
from ops.core.installation import make_command

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _MACHINE, _FIRST_ARGUMENT = 0, 4, 16
"""Offsets in the kernel's structure seccomp_data."""
_ALLOW, _NOT_PERMITTED, _NOT_IMPLEMENTED = 0x7FFF0000, 0x00050001, 0x00050026
_NEW_USER_NAMESPACE = 0x10000000
_OTHER_NUMBERS = 0x40000000
"""From this number on, x86 system calls are for 32-bit pointers."""
_CLONE3 = 435
"""Its flags are in memory, which a filter cannot read; the C library uses `clone` if it is not implemented."""
_MACHINES = {
    "x86_64": (0xC000003E, {"clone": 56, "unshare": 272, "setns": 308}),
    "aarch64": (0xC00000B7, {"clone": 220, "unshare": 97, "setns": 268}),
}


def build_namespace_filter() -> bytes:
    """Return a seccomp filter that refuses to make or enter a user namespace; empty on machines with unknown call
    numbers."""
    if (known := _MACHINES.get(os.uname().machine)) is None:
        return b""
    machine, numbers = known
    return b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (_LOAD, 0, 0, _MACHINE),
            (_EQUAL, 0, 9, machine),
            (_LOAD, 0, 0, _NUMBER),
            (_AT_LEAST, 7, 0, _OTHER_NUMBERS),
            (_EQUAL, 7, 0, _CLONE3),
            (_EQUAL, 5, 0, numbers["setns"]),
            (_EQUAL, 1, 0, numbers["unshare"]),
            (_EQUAL, 0, 2, numbers["clone"]),
            (_LOAD, 0, 0, _FIRST_ARGUMENT),
            (_ANY_BIT, 1, 0, _NEW_USER_NAMESPACE),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _NOT_PERMITTED),
            (_RETURN, 0, 0, _NOT_IMPLEMENTED),
        )
    )


@contextmanager
def open_namespace_filter() -> Iterator[tuple[int, ...]]:
    """Provide a descriptor from which bubblewrap reads the filter; none if there is no filter."""
    content = build_namespace_filter()
    if not content:
        yield ()
        return
    reading, writing = os.pipe()
    try:
        os.write(writing, content)
        os.close(writing)
        yield (reading,)
    finally:
        os.close(reading)


Isolation = Literal["bubblewrap", "resource_limits"]
_TMP_BYTES = 256 << 20
"""Size of a run's own /tmp, and of its own /dev/shm: both are in memory and end with the run."""
PROGRAM_FOLDER = "/tmp/podium-program"
"""A program's own folder in bubblewrap, in its own /tmp; nothing in it reaches the machine's disk."""
_USERS = range(61_184, 65_520)
"""User ids for programs if Podium runs as root: systemd's range for services without accounts."""
_SYSTEM = (
    "/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin",
    "/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime",
)  # fmt: skip
_PROJECT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Libraries:
    """The libraries that a program can import, and the folder whose `python` finds them."""

    folders: tuple[str, ...]
    command_folder: str
    """A folder of commands, which is first on the program's PATH."""
    environment: str = ""
    """The virtual environment; "" for Podium's own."""


@dataclass
class _Settings:
    """The settings given to `configure`; before that, the strictest ones."""

    isolation: Isolation = "bubblewrap"
    environments: Mapping[str, Path] = field(default_factory=dict)
    root: Path | None = None
    """The project's folder, which may contain environments that no setting names."""
    has_noted_limits: bool = False
    has_warned_of_root: bool = False


_SETTINGS = _Settings()


def configure(root: Path, isolation: Isolation = "bubblewrap", environments: Mapping[str, str] | None = None) -> None:
    """Accept this isolation, or a stronger one, in this process; `root` is the project's folder.

    `environments` maps a benchmark to the virtual environment of its programs, a path from `root`. Called when a recipe
    is loaded. A process that never calls it accepts only bubblewrap.
    """
    _SETTINGS.has_noted_limits = _SETTINGS.has_noted_limits and _SETTINGS.isolation == isolation
    _SETTINGS.isolation = isolation
    _SETTINGS.root = root
    _SETTINGS.environments = {name: root / path for name, path in (environments or {}).items()}


def find_available_isolation() -> Isolation:
    """Return the isolation that works on this machine: "bubblewrap" if `bwrap` works, otherwise "resource_limits".

    The latter are only limits and an audit hook, which stop accidents, but not a determined attacker.
    """
    return "resource_limits" if _why_bubblewrap_fails() else "bubblewrap"


def choose_isolation() -> Isolation:
    """Return the isolation for a program. Raises `ConfigError` if the accepted one does not work on this machine."""
    obstacle = _why_bubblewrap_fails()
    if not obstacle:
        _warn_if_root()
        return "bubblewrap"
    if _SETTINGS.isolation == "bubblewrap":
        raise ConfigError(
            "the recipe",
            "grading.isolation",
            f"asks for bubblewrap around programs, which does not work here: {obstacle}",
            "Install it (Debian: `apt-get install bubblewrap`; Fedora: `dnf install bubblewrap`) and allow "
            "unprivileged user namespaces, or accept limits alone, for programs of known origin only: "
            "`grading: {isolation: resource_limits}`",
        )
    if not _SETTINGS.has_noted_limits:
        _SETTINGS.has_noted_limits = True
        print(f"note: programs run behind resource limits alone, as the recipe accepts ({obstacle})", file=sys.stderr)
        if _is_root():
            print("warning: they run as root: start Podium as another user, or install bubblewrap", file=sys.stderr)
    return "resource_limits"


def _warn_if_root() -> None:
    """Warn once if programs in bubblewrap keep the user id of root."""
    if _is_root() and not _SETTINGS.has_warned_of_root:
        _SETTINGS.has_warned_of_root = True
        if why := _why_root_is_kept(podium_libraries()):
            print(
                f"warning: programs run in bubblewrap, but as root: {why}. Start Podium as another user",
                file=sys.stderr,
            )


# ── libraries ────────────────────────────────────────────────────────────────


def program_libraries(benchmark: str) -> Libraries:
    """Return the libraries of this benchmark's programs: its own environment if that exists, otherwise Podium's."""
    return _choose_libraries(_SETTINGS.environments, _SETTINGS.root, benchmark)


def program_libraries_in(environments: Mapping[str, str], root: Path, benchmark: str) -> Libraries:
    """Return the libraries that `program_libraries` returns in a process that is configured with these environments."""
    return _choose_libraries({name: root / path for name, path in environments.items()}, root, benchmark)


def _choose_libraries(environments: Mapping[str, Path], root: Path | None, benchmark: str) -> Libraries:
    home = environments.get(benchmark) or (root and root / f".venv-{benchmark}")
    return _environment_libraries(home) if home is not None and (home / "pyvenv.cfg").is_file() else podium_libraries()


@lru_cache(maxsize=1)
def podium_libraries() -> Libraries:
    """Return the libraries of Podium's own environment."""
    folders = tuple(dict.fromkeys(sysconfig.get_paths()[name] for name in ("purelib", "platlib")))
    return Libraries(folders, str(Path(sys.executable).parent))


@lru_cache(maxsize=4)
def _environment_libraries(home: Path) -> Libraries:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = home / "lib" / f"python{version}" / "site-packages"
    if not folder.is_dir():
        raise ConfigError(
            "the recipe",
            "grading.environments",
            f"names {home}, which is not an environment of Python {version}",
            f"Remove it. {make_command(f'bigcodebench PYTHON={sys.executable}', 'Make it again with this Python')}",
        )
    return Libraries((str(folder),), str(home / "bin"), str(home))


# ── bubblewrap ───────────────────────────────────────────────────────────────


def list_readable_paths(libraries: Libraries) -> tuple[str, ...]:
    """Return the paths that a program may read besides its own folder: interpreter, system libraries, its libraries."""
    commands = (
        (libraries.command_folder, str(Path(libraries.environment) / "pyvenv.cfg"))
        if libraries.environment
        else (libraries.command_folder,)
    )
    return (*_SYSTEM, sys.base_prefix, *libraries.folders, *commands)


def build_bubblewrap_command(libraries: Libraries, filters: Iterable[int] = ()) -> list[str]:
    """Return the beginning of the command that runs a program in bubblewrap.

    Readable paths are read-only, `PROGRAM_FOLDER` is writable, and neither the network nor other processes are
    reachable. If Podium runs as root and the machine allows it, each program runs as a separate user. `filters` are the
    descriptors of `open_namespace_filter`.
    """
    return _build_command(
        libraries, secrets.choice(_USERS) if _is_root() and not _why_root_is_kept(libraries) else None, filters
    )


def _build_command(chosen: Libraries, user: int | None, filters: Iterable[int]) -> list[str]:
    places = list_readable_paths(chosen)
    binds = [part for place in places for part in ("--ro-bind-try", place, place)]
    # A project below /usr stays hidden, except for its libraries.
    hidden = ["--tmpfs", str(_PROJECT)] if any(_PROJECT.is_relative_to(p) for p in (*_SYSTEM, sys.base_prefix)) else []
    system = 3 * (len(_SYSTEM) + 1)
    own = ["--perms", "1777", "--size", str(_TMP_BYTES), "--tmpfs"]
    privileges = ["--cap-drop", "ALL"]
    change_user: list[str] = []
    if user is not None:
        privileges += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]  # they end with the change
        change_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--inh-caps=-all"]
    return [
        shutil.which("bwrap") or "bwrap", *_namespace_options(user), "--die-with-parent", *privileges,
        *own, "/tmp", "--perms", "0777", "--dir", PROGRAM_FOLDER,
        *_parent_folder_options(places), *binds[:system], *hidden, *binds[system:],
        # As root, bubblewrap itself leaves /proc/sys writable, which controls the machine's kernel.
        "--proc", "/proc", "--remount-ro", "/proc",
        "--dev", "/dev", *own, "/dev/shm", "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", PROGRAM_FOLDER,
        *(part for descriptor in filters for part in ("--seccomp", str(descriptor))), *change_user,
    ]  # fmt: skip


def _namespace_options(user: int | None) -> list[str]:
    """Return the options for all namespaces; root can take another user's id only outside a user namespace."""
    if user is not None:
        return [f"--unshare-{name}" for name in ("pid", "ipc", "net", "uts", "cgroup-try")]
    return ["--unshare-all"]


def _parent_folder_options(places: Iterable[str]) -> list[str]:
    """Return options that make the folders above `places` accessible to any user, since bubblewrap copies their
    modes."""
    parents = {str(parent): None for place in places for parent in reversed(Path(place).parents[:-1])}
    return [part for parent in parents for part in ("--dir", parent)]


def _is_root() -> bool:
    return os.geteuid() == 0


@lru_cache(maxsize=1)
def _why_bubblewrap_fails() -> str:
    """Return why bubblewrap does not work here; "" if it does."""
    if shutil.which("bwrap") is None:
        return "there is no `bwrap` on PATH"
    if _is_root() and not _why_root_is_kept(podium_libraries()):
        return ""
    return _try_bubblewrap(podium_libraries(), None)


@lru_cache(maxsize=4)
def _why_root_is_kept(chosen: Libraries) -> str:
    """Return why programs with these libraries cannot run as another user than root; "" if they can."""
    return _try_bubblewrap(chosen, _USERS[0])


def _try_bubblewrap(chosen: Libraries, user: int | None) -> str:
    """Return why a first program that reads its libraries and writes in its folder fails; "" if it does not."""
    program = f"import os; [os.listdir(place) for place in {chosen.folders!r}]; os.mkdir('written')"
    try:
        with open_namespace_filter() as filters:
            ended = subprocess.run(
                [*_build_command(chosen, user, filters), os.path.realpath(sys.executable), "-I", "-S", "-c", program],
                env={}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10, check=False,
                pass_fds=filters,
            )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "`bwrap` did not end within 10 s"
    return "" if ended.returncode == 0 else (ended.stderr.strip().splitlines() or ["`bwrap` fails"])[-1]
