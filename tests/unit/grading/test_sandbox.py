"""The wall around programs that nobody has read: what they see of the machine, behind each kind of it."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ops.config import Grading, load_recipe
from ops.core.errors import ConfigError
from ops.core.problem import CodeTest, Problem
from ops.grading import configure, grade, sandbox
from ops.grading.isolation import isolation as standing
from ops.grading.isolation import libraries, own_libraries
from ops.grading.sandbox import ProgramLimits

ROOT = Path(__file__).resolve().parents[3]
walls = importlib.import_module("ops.grading.isolation")
LIMITS = ProgramLimits(cpu_s=5, wall_s=30, memory=512 << 20)
walled = pytest.mark.skipif(standing() != "bubblewrap", reason="bubblewrap does not work on this machine")


@pytest.fixture
def no_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without `bwrap` on its PATH, and a process that was told nothing yet."""
    monkeypatch.setenv("PATH", "/nowhere")
    walls._obstacle.cache_clear()
    configure(Grading(), ROOT)
    yield
    monkeypatch.undo()
    walls._obstacle.cache_clear()
    weakest = "bubblewrap" if standing() == "bubblewrap" else "resource_limits"
    configure(Grading(isolation=weakest), ROOT)


def value(body: str, limits: ProgramLimits = LIMITS) -> Any:
    """What a function with this body returns inside the sandbox."""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    run = sandbox.run("call", f"def f():\n{lines}", ["f()"], limits)
    assert run.results is not None, run.why
    return run.results[0]


PROBLEM = Problem("p", "livecodebench", "code", "test", "?", "", "code", tests=(CodeTest("call", "f()", "42"),))


def test_without_bubblewrap_no_program_runs_and_the_error_says_what_to_do(no_bubblewrap: None) -> None:
    said = r"grading\.isolation.*no `bwrap`.*apt-get install bubblewrap.*resource_limits"
    with pytest.raises(ConfigError, match=said):
        grade(PROBLEM, "```python\ndef f(): return 42\n```")
    assert grade(PROBLEM, "no program at all").score == 0.0, "what runs nothing needs no wall"


def test_a_recipe_accepts_the_weaker_wall_by_name(no_bubblewrap: None, capsys: pytest.CaptureFixture[str]) -> None:
    configure(Grading(isolation="resource_limits"), ROOT)
    assert standing() == "resource_limits"
    assert value("return 6 * 7") == ["ok", 42]
    assert "resource limits alone" in capsys.readouterr().err
    status, why = value("import socket\nsocket.create_connection(('127.0.0.1', 9))")
    assert (status, "PermissionError" in why) == ("error", True)


def test_behind_limits_alone_other_processes_and_the_project_are_not_read(no_bubblewrap: None) -> None:
    configure(Grading(isolation="resource_limits"), ROOT)
    for place in (f"/proc/{os.getpid()}/environ", f"/proc/{os.getpid()}/mem", str(ROOT / "pyproject.toml")):
        status, why = value(f"return open({place!r}, 'rb').read(10)")
        assert (status, "reads only" in why) == ("error", True)
    status, why = value(f"import os\nreturn os.listdir({str(ROOT)!r})")
    assert (status, "lists only" in why) == ("error", True)


def test_the_quickstart_accepts_limits_and_recipes_with_language_models_do_not() -> None:
    assert load_recipe(ROOT / "config", "quickstart").grading.isolation == "resource_limits"
    recipes = [load_recipe(ROOT / "config", file.stem) for file in (ROOT / "config" / "recipes").glob("*.yaml")]
    others = {recipe.name: recipe.grading.isolation for recipe in recipes if recipe.pool != "quickstart"}
    assert "paper" in others
    assert set(others.values()) == {"bubblewrap"}


def test_a_benchmark_is_given_the_environment_that_was_made_for_it(tmp_path: Path) -> None:
    home = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    [packages] = home.glob("lib/python*/site-packages")
    (packages / "of_its_time.py").write_text("VERSION = 7", encoding="utf-8")
    test = CodeTest("call", "f()", "[7, True]")
    body = "import shutil\nimport of_its_time\ndef f():\n    python = shutil.which('python')\n"
    program = f"```python\n{body}    return [of_its_time.VERSION, python.startswith({str(home)!r})]\n```"
    given, other = (replace(PROBLEM, benchmark=name, tests=(test,)) for name in ("bigcodebench", "livecodebench"))
    assert grade(given, program + "\nbefore").score == 0.0
    accepted = Grading(isolation=standing(), environments={"bigcodebench": "env"})
    configure(accepted, tmp_path)
    try:
        assert grade(replace(given, id="with it"), program).score == 1.0
        assert grade(other, program).score == 0.0
    finally:
        configure(Grading(isolation=standing()), ROOT)


def test_an_environment_is_found_by_the_name_of_its_benchmark(tmp_path: Path) -> None:
    (tmp_path / ".venv-livecodebench").mkdir()
    (tmp_path / ".venv-livecodebench" / "pyvenv.cfg").write_text("version = 3.9", encoding="utf-8")
    configure(Grading(isolation=standing()), tmp_path)
    try:
        with pytest.raises(ConfigError, match=r"\.venv-livecodebench, which is not an environment of Python"):
            libraries("livecodebench")
        assert libraries("bigcodebench") == own_libraries()
    finally:
        configure(Grading(isolation=standing()), ROOT)


def test_an_environment_of_another_python_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "pyvenv.cfg").write_text("version = 3.9", encoding="utf-8")
    configure(Grading(isolation=standing(), environments={"livecodebench": "env"}), tmp_path)
    try:
        with pytest.raises(ConfigError, match="make bigcodebench"):
            grade(replace(PROBLEM, id="another python"), "```python\ndef f(): return 42\n```")
    finally:
        configure(Grading(isolation=standing()), ROOT)


def test_bubblewrap_is_used_where_it_works() -> None:
    assert (standing() == "bubblewrap") <= (shutil.which("bwrap") is not None)


@walled
def test_there_is_no_network_but_a_loopback_of_its_own() -> None:
    body = "return [line.split(':')[0].strip() for line in open('/proc/net/dev').read().splitlines()[2:]]"
    assert value(body) == ["ok", ["lo"]]


@walled
def test_even_past_the_audit_hook_no_connection_leaves() -> None:
    # libc's own connect raises no audit event: only the namespace stands in the way.
    body = """
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
descriptor = libc.socket(2, 1, 0)
address = struct.pack('=HHI8x', 2, 0x0a00, 0x08080808)
return [libc.connect(descriptor, address, 16), ctypes.get_errno()]
"""
    unreachable = 101
    assert value(body) == ["ok", [-1, unreachable]]


@walled
def test_it_sees_no_home_no_project_and_no_other_process(tmp_path: Path) -> None:
    places = [str(ROOT / "pyproject.toml"), str(ROOT / "ops"), str(tmp_path), "/etc/passwd", "/home", "/var"]
    body = f"""
import os
seen = [place for place in {places} if os.path.exists(place)]
return [seen, sorted(int(name) for name in os.listdir('/proc') if name.isdigit())]
"""
    _, (seen, processes) = value(body)
    assert seen == []
    assert os.getpid() not in processes
    assert len(processes) <= 3


@walled
def test_the_system_is_read_only_even_past_the_audit_hook() -> None:
    body = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
flags = os.O_WRONLY | os.O_CREAT
opened = [libc.open(path, flags, 0o600) for path in (b'/usr/planted', b'/bin/planted')]
return [opened, ctypes.get_errno(), libc.open(b'mine', flags, 0o600) >= 0]
"""
    read_only = 30
    assert value(body) == ["ok", [[-1, -1], read_only, True]]


@walled
def test_nothing_of_the_environment_or_of_open_files_comes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "do not tell")
    body = """
import os
shown = [f'/proc/self/fd/{name}' for name in os.listdir('/proc/self/fd')]
return [os.environ.get('SECRET'), [os.readlink(place) for place in shown if os.path.islink(place)], os.getcwd()]
"""
    _, (secret, opened, folder) = value(body)
    assert secret is None
    assert [place for place in opened if not place.startswith(("/dev/null", "pipe:", folder))] == []


def test_memory_is_bounded() -> None:
    status, why = value("return len('x' * (1 << 30))", ProgramLimits(cpu_s=5, wall_s=30, memory=256 << 20))
    assert (status, "MemoryError" in why) == ("error", True)


def living(mark: str) -> list[str]:
    """Processes of this machine whose command line holds `mark`."""
    pids = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "cmdline").read_text(errors="replace"):
                pids.append(entry.name)
        except OSError:  # it ended meanwhile
            continue
    return pids


def test_running_out_of_time_ends_the_whole_tree() -> None:
    mark = f"podium-left-behind-{os.getpid()}"
    tests = f"""
import subprocess, time, unittest
class T(unittest.TestCase):
    def test_it(self):
        subprocess.Popen(["/bin/sh", "-c", "sleep 600; : {mark}"], start_new_session=True)
        time.sleep(600)
"""
    limits = ProgramLimits(cpu_s=20, wall_s=4, memory=8 << 30, processes=4)
    run = sandbox.run("unittest", "", [tests], limits)
    assert run.overran
    assert "still running" in run.why
    if standing() == "bubblewrap":
        # A child in a session of its own outlives a process group, but not its PID space.
        deadline = time.monotonic() + 10
        while living(mark) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert living(mark) == []


@walled
def test_its_tmp_is_its_own_and_bounded() -> None:
    body = """
import os
with open('/tmp/mine', 'w') as out:
    out.write('seen')
room = os.statvfs('/tmp')
return [os.listdir('/tmp') != [], room.f_frsize * room.f_blocks]
"""
    status, (written, size) = value(body)
    assert (status, written) == ("ok", True)
    assert size <= 256 << 20
    assert not Path("/tmp/mine").exists()
