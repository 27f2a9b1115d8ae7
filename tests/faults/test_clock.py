"""The clock is changed by a person, NTP or a suspended virtual machine: no hang, and no running process counts as
ended."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest

from ops.core import processes
from ops.core.errors import OverBudget
from ops.core.processes import ProcessId, name_of, state_of, this_process
from ops.spending.ledger import Bill, Ledger
from ops.store import ResponseCache
from ops.workers.machine import MachineLimits

YEAR_S = 365 * 86_400.0
REAL = time.time


def set_clock(monkeypatch: pytest.MonkeyPatch, by_s: float) -> None:
    """Set the time, and return the kernel's clocks: the time, and the boot time computed from it."""
    boot = psutil.boot_time()
    monkeypatch.setattr(time, "time", lambda: REAL() + by_s)
    monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: boot + by_s)


@pytest.mark.parametrize("by_s", [3600.0, -3600.0, 0.02])
def test_a_living_process_is_alive_whatever_the_clock_says(monkeypatch: pytest.MonkeyPatch, by_s: float) -> None:
    me, name = this_process(), name_of(os.getpid())
    set_clock(monkeypatch, by_s)
    assert psutil.Process().create_time() != pytest.approx(REAL(), abs=0.001)
    assert state_of(me) == "running"
    assert name_of(os.getpid()) == name
    monkeypatch.setattr(processes, "_own", None)
    assert this_process() == me


def dead() -> ProcessId:
    """A process that has ended, whose pid another process has."""
    return ProcessId(os.getpid(), this_process().started - 1)


def test_another_start_of_the_same_pid_is_gone() -> None:
    assert state_of(dead()) == "gone"


@pytest.mark.parametrize(
    ("made_s", "asked_s", "holds"),
    [
        pytest.param(YEAR_S, 0.0, False, id="made a year in the future: it would block the call for a year"),
        pytest.param(0.0, 60.0, True, id="made a minute before a call that may take ten"),
    ],
)
def test_how_long_the_claim_of_a_dead_process_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_s: float, asked_s: float, holds: bool
) -> None:
    cache = ResponseCache(tmp_path)
    with monkeypatch.context() as patch:
        set_clock(patch, made_s)
        assert cache.backend.claim("sent")[0] is not None
        assert cache.mark_sent({"sent": 600.0}) == {"sent"}
    with cache.backend._claims._file.connection() as connection:
        connection.execute("UPDATE claims SET pid = ?, started = ?", dead())
    set_clock(monkeypatch, asked_s)
    assert (ResponseCache(tmp_path).backend.claim("sent")[0] is None) is holds


@pytest.mark.parametrize("by_s", [YEAR_S, -YEAR_S])
def test_a_runs_cap_holds_and_what_it_spent_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_s: float
) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")

    def spend(usd: float) -> None:
        ledger.settle(Bill(ledger.reserve("run", usd, cap_usd=1.0), "training", "worker", usd))

    spend(0.6)
    set_clock(monkeypatch, by_s)
    monkeypatch.setattr("ops.spending.ledger.this_month", lambda: "2099-01")  # which asks the kernel itself
    with pytest.raises(OverBudget):
        spend(0.6)
    spend(0.3)
    assert ledger.by_run()["run"].usd == pytest.approx(0.9)
    assert len(ledger.by_month("run")) == 2


def test_a_pause_noted_before_the_clock_was_set_back_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = MachineLimits(tmp_path)
    with monkeypatch.context() as patch:
        set_clock(patch, YEAR_S)
        with limits.times() as times:
            for field in times.__dataclass_fields__:
                setattr(times, field, limits.now() + 1.0)
        assert max(vars(limits.known_times()).values()) > REAL() + YEAR_S
    assert max(vars(limits.known_times()).values()) <= REAL()
