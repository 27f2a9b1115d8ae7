"""The processes of a training: the number of this machine among several, the end of ranks and launchers, requests to
stop, and freed memory.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys

import psutil
import pytest

from ops.core.errors import ConfigError
from ops.core.processes import unique_process_name
from ops.training.run import processes
from ops.training.run.processes import (
    MAIN_NODE_VARIABLE,
    NODES_VARIABLE,
    RANK_VARIABLE,
    TrainingNode,
    read_training_node,
)
from ops.training.run.stop_request import StopRequest, TrainingStopped


@pytest.mark.parametrize("nodes", [None, "1"])
def test_one_machine_unless_the_environment_says_otherwise(monkeypatch: pytest.MonkeyPatch, nodes: str | None) -> None:
    for name in (NODES_VARIABLE, RANK_VARIABLE, MAIN_NODE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    if nodes:
        monkeypatch.setenv(NODES_VARIABLE, nodes)
    assert read_training_node() == TrainingNode() and read_training_node().launcher_arguments(3) == [
        "--num_machines",
        "1",
    ]


def node(patch: pytest.MonkeyPatch, rank: str, main: str) -> TrainingNode:
    """Return this machine of two by the environment."""
    for name, value in ((NODES_VARIABLE, "2"), (RANK_VARIABLE, rank), (MAIN_NODE_VARIABLE, main)):
        patch.setenv(name, value)
    return read_training_node()


def test_one_of_two_machines_starts_half_of_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    second = node(monkeypatch, "1", "10.0.0.1:29500")
    arguments = second.launcher_arguments(4)
    assert dict(zip(arguments[::2], arguments[1::2], strict=True)) == {
        "--num_machines": "2", "--machine_rank": "1", "--main_process_ip": "10.0.0.1",
        "--main_process_port": "29500", "--deepspeed_multinode_launcher": "standard",
    }  # fmt: skip
    with pytest.raises(ConfigError, match="3 ranks"):
        second.launcher_arguments(3)


@pytest.mark.parametrize(("rank", "main"), [("", "h:1"), ("2", "h:1"), ("0", ""), ("0", "host"), ("x", "h:1")])
def test_an_incomplete_address_of_a_machine_is_refused(monkeypatch: pytest.MonkeyPatch, rank: str, main: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        node(monkeypatch, rank, main)


SLEEP = "import time; time.sleep(600)"
WATCH = f"from ops.training.run import processes; processes.watch_parents(); print('watching', flush=True); {SLEEP}"
LAUNCH = (
    "import os, subprocess, sys;"
    f"rank = subprocess.Popen([sys.executable, '-c', {WATCH!r}], env=os.environ | {{'LOCAL_RANK': '1'}});"
    "print(rank.pid, flush=True); rank.wait()"
)


@pytest.mark.parametrize("victim", ["launcher", "starting process"])
def test_a_rank_ends_with_its_launcher_and_with_the_starting_process(victim: str) -> None:
    asker = subprocess.Popen([sys.executable, "-c", SLEEP])
    environment = os.environ | {processes.PARENT_VARIABLE: unique_process_name(asker.pid)}
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCH], env=environment, stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    rank = psutil.Process(int(launcher.stdout.readline()))
    assert launcher.stdout.readline() == "watching\n"
    try:
        (launcher if victim == "launcher" else asker).kill()
        rank.wait(timeout=60)  # without the watch it would continue to sleep
    finally:
        for process in (asker, launcher):
            process.kill()
            process.wait(240)
        launcher.stdout.close()


def test_a_trainer_without_a_launcher_outlives_the_shell_that_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.delenv(processes.PARENT_VARIABLE, raising=False)
    assert processes.list_watched_processes() == []


PASS_ON = (
    "import accelerate.commands.launch as launch, ops.training.run.processes as launcher, subprocess, sys, time;"
    "launch.main = lambda: print(subprocess.Popen([sys.executable, '-c', sys.argv[1]]).wait(), flush=True);"
    "launcher.main()"
)
LISTEN = (
    "import os, signal, time;"
    "heard = [];"
    # Not `print`, because the next signal's own `print` must not interrupt it.
    "signal.signal(signal.SIGTERM, lambda *_: (heard.append(1), os.write(1, b'heard\\n')));"
    "print('listening', flush=True);"
    "deadline = time.monotonic() + 60;\n"
    "while len(heard) < 2 and time.monotonic() < deadline: time.sleep(0.05)\n"
    "sys = __import__('sys'); sys.exit(len(heard))"
)


@pytest.mark.long
def test_a_launcher_passes_each_request_to_stop_on_and_ends_with_its_ranks() -> None:
    launcher = subprocess.Popen([sys.executable, "-c", PASS_ON, LISTEN], stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    try:
        assert launcher.stdout.readline() == "listening\n"
        for _ in range(2):
            launcher.send_signal(signal.SIGTERM)
            assert launcher.stdout.readline() == "heard\n"
        assert launcher.stdout.readline() == "2\n"
        assert launcher.wait(timeout=60) == 0
    finally:
        launcher.kill()
        launcher.wait(240)
        launcher.stdout.close()


def test_a_request_to_stop_ends_a_pause_for_workers_at_once() -> None:
    request = StopRequest()
    with request.handle_signals(), pytest.raises(TrainingStopped, match="while workers were away"):
        os.kill(os.getpid(), signal.SIGTERM)
        asyncio.run(request.sleep(3600))


ALLOCATE = """
import resource
from ops.training.run.allocator import reuse_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        b"x" * (64 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident_mib():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() >> 20

outside = faults()
with reuse_freed_memory():
    inside = faults()
    kept = resident_mib()
print(outside, inside, kept, resident_mib())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the allocator is not glibc's")
def test_freed_memory_is_reused_inside_the_block_and_returned_after_it() -> None:
    done = subprocess.run([sys.executable, "-c", ALLOCATE], capture_output=True, text=True, timeout=60, check=True)
    outside, inside, kept, after = map(int, done.stdout.split())
    assert inside < outside / 10, done.stdout
    assert kept - after >= 60, done.stdout
