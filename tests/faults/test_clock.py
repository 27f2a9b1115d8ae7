"""The clock is changed by a person, NTP or a suspended virtual machine: no hang, and no running process counts as
ended."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest

from ops.core import processes
from ops.core.processes import ProcessId, process_state, this_process, unique_process_name
from ops.store import Kind, ResponseCache

REAL = time.time


def set_clock(monkeypatch: pytest.MonkeyPatch, by_s: float) -> None:
    """Set the time, and return the kernel's clocks: the time, and the boot time computed from it."""
    boot = psutil.boot_time()
    monkeypatch.setattr(time, "time", lambda: REAL() + by_s)
    monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: boot + by_s)


@pytest.mark.parametrize("by_s", [3600.0, -3600.0, 0.02])
def test_a_living_process_is_alive_whatever_the_clock_says(monkeypatch: pytest.MonkeyPatch, by_s: float) -> None:
    me, name = this_process(), unique_process_name(os.getpid())
    set_clock(monkeypatch, by_s)
    assert psutil.Process().create_time() != pytest.approx(REAL(), abs=0.001)
    assert process_state(me) == "running"
    assert unique_process_name(os.getpid()) == name
    monkeypatch.setattr(processes, "_this_process", None)
    assert this_process() == me


def dead() -> ProcessId:
    """A process that has ended, whose pid another process has."""
    return ProcessId(os.getpid(), this_process().started - 1)


def test_another_start_of_the_same_pid_is_gone() -> None:
    assert process_state(dead()) == "gone"


def test_a_call_that_a_dead_process_sent_stays_claimed_while_it_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ResponseCache(tmp_path)
    assert cache.backend.claim(Kind.RESPONSE, ["sent"])[0] is not None
    assert cache.mark_sent({"sent": 600.0}) == {"sent"}
    with cache.backend._claims._file.connection() as connection:
        connection.execute("UPDATE claims SET pid = ?, started = ?", dead())
    set_clock(monkeypatch, 60.0)
    assert ResponseCache(tmp_path).backend.claim(Kind.RESPONSE, ["sent"])[0] is None
