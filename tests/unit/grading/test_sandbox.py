"""The sandbox of untrusted programs: what they see of the machine, with each kind of isolation."""

from __future__ import annotations

import ctypes
import errno
import importlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from ops.config import load_recipe
from ops.core.errors import ConfigError
from ops.core.problem import CodeTest
from ops.grading import configure, grade, grade_many, sandbox
from ops.grading.isolation import find_available_isolation as standing
from ops.grading.isolation import podium_libraries, program_libraries
from ops.grading.sandbox import ProgramLimits
from tests import needs
from tests.builders import fenced, make_code_problem, make_unit_test

ROOT = Path(__file__).resolve().parents[3]
walls = importlib.import_module("ops.grading.isolation")
LIMITS = ProgramLimits(cpu_s=5, wall_s=30, memory_bytes=512 << 20)
PAST_THE_HOOK = """
import ctypes, os, struct
libc, new = ctypes.CDLL(None, use_errno=True), os.O_WRONLY | os.O_CREAT
def opened(path, flags=os.O_WRONLY):
    return libc.open(path.encode(), flags, 0o600) >= 0
def connected(address, port):
    return libc.connect(libc.socket(2, 1, 0), struct.pack('=HHI8x', 2, port, address), 16) == 0
"""
"""libc's own calls raise no audit event, so only the kernel can refuse them."""
KERNEL_FILES = [
    "/proc/self/oom_score_adj", "/proc/self/setgroups", "/proc/self/uid_map",
    "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/vm/swappiness",
    "/proc/sys/user/max_user_namespaces", "/proc/sysrq-trigger", "/proc/irq/default_smp_affinity", "/proc/bus",
    "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/power/state",
]  # fmt: skip


def landlock_version() -> int:
    return int(ctypes.CDLL(None).syscall(ctypes.c_long(444), None, ctypes.c_ulong(0), ctypes.c_long(1)))


def value(body: str, limits: ProgramLimits = LIMITS) -> Any:
    """Return what a function with this body returns inside the sandbox."""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    run = sandbox.run("call", f"{PAST_THE_HOOK}def f():\n{lines}", ["f()"], limits)
    assert run.results is not None, run.error
    return run.results[0]


PRIVATE = ("environ", "mem", "maps")
PROBLEM = make_code_problem(CodeTest("call", "f()", "42"))
RIGHT = fenced("def f(): return 42")


def test_without_bubblewrap_no_program_runs_and_the_error_says_what_to_do(no_bubblewrap: None) -> None:
    configure(ROOT)
    said = r"grading\.isolation.*no `bwrap`.*apt-get install bubblewrap.*resource_limits"
    with pytest.raises(ConfigError, match=said):
        grade(PROBLEM, RIGHT)
    assert grade(PROBLEM, "no program at all").score == 0.0, "what runs nothing needs no wall"


def test_a_recipe_accepts_the_weaker_isolation_by_name(limits_alone: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert standing() == "resource_limits"
    assert value("return 6 * 7") == ["ok", 42]
    assert "resource limits alone" in capsys.readouterr().err
    status, why = value("import socket\nsocket.create_connection(('127.0.0.1', 9))")
    assert (status, "PermissionError" in why) == ("error", True)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("open('/proc/{pid}/environ', 'rb').read(10)", "reads only"),
        ("open('/proc/{pid}/mem', 'rb').read(10)", "reads only"),
        ("open('{root}/pyproject.toml', 'rb').read(10)", "reads only"),
        ("os.listdir('{root}')", "lists only"),
    ],
)
def test_behind_limits_alone_other_processes_and_the_project_are_not_read(
    call: str, said: str, limits_alone: None
) -> None:
    status, why = value(f"return {call.format(pid=os.getpid(), root=ROOT)}")
    assert (status, said in why) == ("error", True)


def test_the_quickstart_accepts_limits_and_recipes_with_language_models_do_not() -> None:
    assert load_recipe(ROOT / "config", "quickstart").grading.isolation == "resource_limits"
    recipes = [load_recipe(ROOT / "config", file.stem) for file in (ROOT / "config" / "recipes").glob("*.yaml")]
    others = {recipe.name: recipe.grading.isolation for recipe in recipes if recipe.pool != "quickstart"}
    assert "paper" in others
    assert set(others.values()) == {"bubblewrap"}


def test_a_benchmark_is_given_the_environment_that_was_made_for_it(tmp_path: Path) -> None:
    home = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, timeout=240)
    [packages] = home.glob("lib/python*/site-packages")
    (packages / "of_its_time.py").write_text("VERSION = 7", encoding="utf-8")
    test = CodeTest("call", "f()", "[7, True]")
    body = "import shutil\nimport of_its_time\ndef f():\n    python = shutil.which('python')\n"
    program = fenced(f"{body}    return [of_its_time.VERSION, python.startswith({str(home)!r})]")
    given, other = (replace(PROBLEM, benchmark=name, tests=(test,)) for name in ("bigcodebench", "livecodebench"))
    assert grade(given, program + "\nbefore").score == 0.0
    configure(tmp_path, standing(), {"bigcodebench": "env"})
    assert grade(replace(given, id="with it"), program).score == 1.0
    assert grade(other, program).score == 0.0


@pytest.mark.parametrize(
    ("folder", "environments", "said"),
    [
        (".venv-livecodebench", {}, r"\.venv-livecodebench, which is not an environment of Python"),
        ("env", {"livecodebench": "env"}, "make bigcodebench"),
    ],
    ids=["found by the benchmark's name", "named by the recipe"],
)
def test_an_environment_of_another_python_is_an_error(
    folder: str, environments: dict[str, str], said: str, tmp_path: Path
) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "pyvenv.cfg").write_text("version = 3.9", encoding="utf-8")
    configure(tmp_path, standing(), environments)
    with pytest.raises(ConfigError, match=said):
        grade(replace(PROBLEM, id=folder), RIGHT)
    assert program_libraries("bigcodebench") == podium_libraries()


def test_bubblewrap_is_used_where_it_works() -> None:
    assert (standing() == "bubblewrap") <= (shutil.which("bwrap") is not None)


@needs.bubblewrap
@pytest.mark.parametrize(
    ("body", "seen"),
    [
        ("return [line.split(':')[0].strip() for line in open('/proc/net/dev').read().splitlines()[2:]]", ["lo"]),
        ("return [connected(0x08080808, 0x0a00), ctypes.get_errno()]", [False, errno.ENETUNREACH]),
        (
            "return [opened('/usr/x', new), opened('/bin/x', new), ctypes.get_errno(), opened('x', new)]",
            [False, False, errno.EROFS, True],
        ),
    ],
    ids=["no network but a loopback of its own", "no connection leaves", "the system is read-only"],
)
def test_bubblewrap_confines_a_program_even_past_the_audit_hook(body: str, seen: list[Any]) -> None:
    assert value(body) == ["ok", seen]


@needs.bubblewrap
def test_it_sees_no_home_no_project_and_no_other_process(tmp_path: Path) -> None:
    places = [str(ROOT / "pyproject.toml"), str(ROOT / "ops"), str(tmp_path), "/etc/passwd", "/home", "/var"]
    body = f"""
seen = [place for place in {places} if os.path.exists(place)]
return [seen, sorted(int(name) for name in os.listdir('/proc') if name.isdigit())]
"""
    _, (seen, processes) = value(body)
    assert seen == []
    assert os.getpid() not in processes
    assert len(processes) <= 3


@needs.bubblewrap
def test_nothing_of_open_files_comes_in() -> None:
    body = """
shown = [f'/proc/self/fd/{name}' for name in os.listdir('/proc/self/fd')]
return [[os.readlink(place) for place in shown if os.path.islink(place)], os.getcwd()]
"""
    _, (opened, folder) = value(body)
    assert [place for place in opened if not place.startswith(("/dev/null", "pipe:", folder))] == []


def test_memory_is_bounded() -> None:
    status, why = value("return len('x' * (1 << 30))", ProgramLimits(cpu_s=5, wall_s=30, memory_bytes=256 << 20))
    assert (status, "MemoryError" in why) == ("error", True)


def ended(mark: str) -> bool:
    """Whether no process of this machine has `mark` in its command line, shortly after the run: the kernel needs a
    moment to end a PID space."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if not any(mark in " ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])):
            return True
        time.sleep(0.05)
    return False


def test_running_out_of_time_ends_the_whole_tree() -> None:
    mark = f"podium-left-behind-{os.getpid()}"
    child = f'subprocess.Popen(["/bin/sh", "-c", "sleep 600; : {mark}"], start_new_session=True)'
    test = make_unit_test("import subprocess, time", child, "time.sleep(600)")
    limits = ProgramLimits(cpu_s=20, wall_s=4, memory_bytes=8 << 30, processes=4)
    run = sandbox.run("unittest", "", [test.input], limits)
    assert run.has_timed_out
    assert "still running" in run.error
    assert ended(mark), "a child in a session of its own outlives the process group"


def test_behind_limits_alone_no_process_outlives_its_run(limits_alone: None) -> None:
    mark = f"podium-detached-{os.getpid()}"
    child = f'subprocess.Popen(["/bin/sh", "-c", "sleep 600; : {mark}"], start_new_session=True, **options)'
    test = make_unit_test("import subprocess", 'for options in ({}, {"env": {}}, {"cwd": "/"}):', f"    {child}")
    limits = ProgramLimits(cpu_s=20, wall_s=60, memory_bytes=8 << 30, processes=4)
    run = sandbox.run("unittest", "", [test.input], limits)
    assert run.results is not None and "T.test_it" in run.results[0][1], run.error
    assert ended(mark)


@pytest.mark.skipif(landlock_version() < 6, reason="the kernel lacks Landlock, or its rules for TCP and signals")
def test_behind_limits_alone_the_kernel_refuses_what_passes_the_audit_hook(limits_alone: None, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("do not tell", encoding="utf-8")
    planted = f"/dev/shm/podium-{secrets.token_hex(8)}"
    reads = [str(tmp_path / "secret"), str(ROOT / "pyproject.toml"), *(f"/proc/{os.getpid()}/{n}" for n in PRIVATE)]
    writes = [str(tmp_path / "planted"), planted, *KERNEL_FILES]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = socket.htons(server.getsockname()[1])
        body = f"""
read = [path for path in {reads} if opened(path, os.O_RDONLY)]
written = [path for path in {writes} if opened(path) or opened(path, new)]
called = connected(0x0100007f, {port})
return [read, written, called, libc.kill({os.getpid()}, 0) == 0, opened('mine', new)]
"""
        assert value(body) == ["ok", [[], [], False, False, True]]
    assert not Path(planted).exists()


@needs.bubblewrap
@pytest.mark.parametrize("apart", [True, False], ids=["as a user of its own", "as the user of Podium"])
def test_the_kernels_own_files_are_not_written(apart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root a write to /proc/sys/kernel/core_pattern would run a command on the host."""
    if not apart:
        monkeypatch.setattr(walls, "_why_root_is_kept", lambda chosen: "no other user")
    body = f"return [path for path in {KERNEL_FILES} if opened(path) or opened(path, new)]"
    assert value(body) == ["ok", []]


NAMESPACES = """
import signal
new_user, setns = 0x10000000, 308 if os.uname().machine == 'x86_64' else 268
def tried(call):
    made = call() >= 0
    return [made, ctypes.get_errno()]
calls = [lambda: libc.unshare(new_user), lambda: libc.unshare(new_user | 0x20000),
         lambda: libc.syscall(56 if setns == 308 else 220, new_user | signal.SIGCHLD, 0, 0, 0, 0),
         lambda: libc.syscall(435, 0, 0), lambda: libc.syscall(setns, 0, new_user)]
return [tried(call) for call in calls]
"""
"""Ways to a user namespace, in which a process has every capability: on success the third would fork."""


@pytest.mark.skipif(os.uname().machine not in ("x86_64", "aarch64"), reason="numbers of system calls")
@pytest.mark.parametrize(
    "wall",
    [pytest.param("bubblewrap", marks=needs.bubblewrap), pytest.param("shared user", marks=needs.bubblewrap), "limits"],
)
def test_a_program_makes_no_user_namespace(
    wall: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if wall == "limits":
        request.getfixturevalue("limits_alone")
    elif wall == "shared user":
        monkeypatch.setattr(walls, "_why_root_is_kept", lambda chosen: "no other user")
    not_permitted, not_implemented = [False, 1], [False, 38]
    assert value(NAMESPACES) == ["ok", [not_permitted] * 3 + [not_implemented, not_permitted]]


@needs.bubblewrap
def test_a_program_has_no_capability_gains_none_and_is_not_root() -> None:
    body = """
status = dict(line.split(':', 1) for line in open('/proc/self/status').read().splitlines())
names = ('CapPrm', 'CapEff', 'CapAmb', 'NoNewPrivs')
return [{int(status[name], 16) for name in names}, int(status['NoNewPrivs']), set(status['Uid'].split())]
"""
    _, (privileges, no_new, users) = value(body)
    assert no_new == 1
    assert sorted(privileges["set"]) == [0, 1]
    assert "0" not in users["set"]


@pytest.mark.skipif(os.geteuid() != 0, reason="Podium does not run as root")
@needs.bubblewrap
def test_as_root_a_machine_that_allows_no_other_user_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(walls, "_why_root_is_kept", lambda chosen: "setpriv: no such file")
    monkeypatch.setattr(walls._SETTINGS, "has_warned_of_root", False)
    for _ in range(2):
        assert value("return 1") == ["ok", 1]
    said = capsys.readouterr().err
    assert said.count("as root: setpriv: no such file. Start Podium as another user") == 1


@needs.bubblewrap
def test_its_folders_are_its_own_bounded_and_empty_again_in_its_next_run() -> None:
    body = """
places = ['/tmp', '/dev/shm', os.getcwd()]
left = [place for place in places if os.path.exists(place + '/mine')]
for place in places:
    open(place + '/mine', 'w').close()
rooms = [os.statvfs(place) for place in places]
created = [place for place in ('/', '/dev/', '/etc/', '/proc/', '/usr/') if opened(place + 'x', new)]
return [left, created, max(room.f_frsize * room.f_blocks for room in rooms)]
"""
    for _ in range(2):
        status, (left, created, size) = value(body)
        assert (status, left, created) == ("ok", [], [])
        assert size <= 256 << 20
    assert not any(Path(place, "mine").exists() for place in ("/tmp", "/dev/shm"))


MARKS = """
import ctypes, os
libc = ctypes.CDLL(None)
place = None
def left(path):
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return True
    except OSError:
        return False
    return False
def shared():
    return libc.shmget(4711, 64, 0o1600) < 0
def key():
    known = libc.syscall(250, 10, -3, b'user', b'podium-mark', 0) >= 0
    libc.syscall(248, b'user', b'podium-mark', b'x', 1, -3)
    return known
"""
"""Ways to detect in a program's second run that there was a first one; marks that cannot be set are skipped."""
CHEAT = f"""{MARKS}
again = WAY
class Any:
    def __eq__(self, other): return not again
def f():
    return Any()
"""


@needs.bubblewrap
@pytest.mark.parametrize(
    "way",
    ["left('/dev/shm/mark')", "left('/tmp/mark')", "left('/mark')", "left('/dev/mark')", "left('mark')", "shared()",
     pytest.param("key()", marks=pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of system calls"))],
)  # fmt: skip
def test_a_mark_that_one_run_leaves_is_not_found_by_the_run_of_the_control(way: str) -> None:
    """A program that answers everything in its first run and nothing in its second would pass half of the draws."""
    ctypes.CDLL(None).syscall(ctypes.c_long(250), ctypes.c_long(1), None)  # a keyring that runs would inherit
    program, test = fenced(CHEAT.replace("WAY", way)), make_unit_test("self.assertEqual(f(), 7)")
    draws = [replace(PROBLEM, id=f"{way} {draw}", tests=(test,)) for draw in range(6)]
    grades = grade_many([(problem, program) for problem in draws], workers=2)
    assert [grade.score for grade in grades] == [0.0] * 6
