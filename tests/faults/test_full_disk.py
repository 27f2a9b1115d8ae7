"""The disk of the cache, the ledger or the model store is full: nothing stored is lost, no call is unknown to the
ledger, and with room again work continues.

`python -m tests.faults.test_full_disk cache|artifacts|calls DISK [STORE|URL]` fills a small file system, and prints a
JSON line.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ops.config import Worker
from ops.core.errors import PodiumError
from ops.core.response import Response
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.release import aliases, registry
from ops.spending.ledger import Ledger
from ops.store import ResponseCache
from ops.synthetic import plugin
from ops.workers.live_call import CallRecorder
from tests import needs
from tests.faults.clients import server as server
from tests.faults.remote import PAID_USD, PRICE, FaultServer, client_in, remote_worker, user
from tests.releases import YES, checkout, empty_store, version

ROOT = Path(__file__).resolve().parents[2]
pytestmark = needs.bubblewrap  # which makes the small file system
BALLAST = "ballast"


def on_a_small_disk(tmp_path: Path, size: int, what: str, *store: str) -> dict[str, Any]:
    disk = tmp_path / "disk"
    disk.mkdir()
    inside = ["bwrap", "--dev-bind", "/", "/", "--size", str(size), "--tmpfs", str(disk), "--die-with-parent"]
    program = [sys.executable, "-m", "tests.faults.test_full_disk", what, str(disk), *store]
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    ran = subprocess.run(
        [*inside, *program], cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=480
    )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def test_the_cache_is_on_a_full_disk(tmp_path: Path) -> None:
    seen = on_a_small_disk(tmp_path, 3_000_000, "cache")
    assert "full" in seen["said"], seen
    assert seen["ours"], "the message says what to do"
    assert seen["held"] == 10 + seen["kept"], "what was stored is stored"
    assert seen["after"] == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_call_is_in_the_ledger_whatever_the_full_disk_kept_from_being_stored(
    server: FaultServer, tmp_path: Path
) -> None:
    seen = on_a_small_disk(tmp_path, 6_000_000, "calls", server.url)
    assert seen["failed"] and all("full" in said for said in seen["failed"]), seen
    remote, embedded = seen["remote"], seen["embedded"]
    assert len(server.came()) == remote["calls"] + remote["lost"], "the ledger has each call that reached the provider"
    assert remote["usd"] == pytest.approx(len(server.came()) * PAID_USD), "at what it cost, once that is known"
    for name in ("remote", "embedded"):
        cached = seen[name]["cached"]
        assert all(known <= booked for known, booked in cached), f"a stored response is in no ledger: {cached}"
        assert cached[-1][0] == QUESTIONS, "with room again, all are answered"
    assert embedded["answered"] >= embedded["calls"] >= QUESTIONS


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_model_store_is_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    seen = on_a_small_disk(tmp_path, 8_000_000, "artifacts", str(empty_store(tmp_path / "empty")))
    assert seen["kind"] != "NoneType", "nothing was full"
    assert seen["champion"] == "1", "the champion is who it was"
    assert (seen["done"], seen["then"]) == (True, "2")


# ── on the small disk ────────────────────────────────────────────────────────


def fill(disk: Path) -> None:
    """Fill the disk completely."""
    with (disk / BALLAST).open("ab") as file:
        while (free := shutil.disk_usage(disk).free) > 0:
            try:
                os.posix_fallocate(file.fileno(), file.tell(), free)
                file.seek(0, os.SEEK_END)
            except OSError:
                return


def attempted(action: Any) -> dict[str, Any]:
    """Return the error of an action, if there is one."""
    error = None
    try:
        action()
    except Exception as raised:  # noqa: BLE001 - what it is, is what the test looks at
        error = raised
    return {"kind": type(error).__name__, "ours": isinstance(error, PodiumError), "said": str(error)}


def cache(disk: Path) -> dict[str, Any]:
    """Store answers before, during and after the full disk."""
    answer = Response("x" * 20_000, Usage(1, 1), 0.0, 0.0, "stop")
    store = ResponseCache(disk)
    for number in range(10):
        store.put_many([(f"before {number}", "material", answer)])
    fill(disk)
    kept = 0

    def put_on() -> None:
        nonlocal kept
        while kept < 200:  # what SQLite had room for in pages of its own
            store.put_many([(f"during {kept}", "material", answer)])
            kept += 1

    stopped = attempted(put_on)
    (disk / BALLAST).unlink()
    again = ResponseCache(disk)
    held = again.find_existing([*(f"before {n}" for n in range(10)), *(f"during {n}" for n in range(kept))])
    again.put_many([("after", "material", answer)])
    return stopped | {"kept": kept, "held": len(held), "after": len(again.find_existing(["after"]))}


QUESTIONS, PARTS = 60, (0, 60, 150, 300, 500)
"""Questions of each worker; KiB that are left on the disk while some more of them are asked."""


def calls(disk: Path, url: str) -> dict[str, Any]:
    """Ask a provider and an embedded worker on a disk that is full several times, and count the calls."""
    answered, answer = [], plugin.answer

    def counted(*arguments: Any, **settings: Any) -> Any:
        answered.append(settings["model"])
        return answer(*arguments, **settings)

    plugin.answer = counted
    client = client_in(disk)
    workers = {
        "remote": remote_worker(url, concurrency=8, retries=0),
        "embedded": Worker.model_validate({"name": "embedded", "model": "local/guesser", "price": PRICE}),
    }
    seen: dict[str, Any] = {name: {"cached": []} for name in workers}
    failed: set[str] = set()

    async def ask(count: int) -> None:
        every = [(worker, sample) for sample in range(count) for worker in workers.values()]
        asked = (client.complete(worker, user("2 + 3 = ?"), sample=sample) for worker, sample in every)
        results = await asyncio.gather(*asked, return_exceptions=True)
        failed.update(str(result) for result in results if isinstance(result, Exception))

    def count() -> None:
        rows = ResponseCache(disk / "cache").backend.iterate_entries()
        stored = [json.loads(row.material)["worker"]["model"] for row in rows]
        for name, sums in client.ledger.by_worker().items():
            seen[name]["cached"].append((stored.count(workers[name].model), sums.calls + sums.lost))

    asyncio.run(ask(2))
    for part, left in enumerate(PARTS, 1):
        fill(disk)
        with (disk / BALLAST).open("ab") as file:
            file.truncate(max(file.tell() - 1024 * left, 0))
        asyncio.run(ask(QUESTIONS * part // len(PARTS)))
        (disk / BALLAST).unlink()
        count()
    asyncio.run(ask(QUESTIONS))
    count()
    client.ledger.close()
    books = Ledger(disk / "ledger.sqlite")
    CallRecorder(ResponseCache(disk / "cache"), books).book_lost_calls()
    for name, sums in books.by_worker().items():
        seen[name] |= {"calls": sums.calls, "lost": sums.lost, "usd": sums.usd}
    seen["embedded"]["answered"] = len(answered)
    return seen | {"failed": sorted(failed)}


def artifacts(disk: Path, store: str) -> dict[str, Any]:
    """Make a promotion."""
    workspace = checkout(disk / "project", Path(store))
    for _ in range(2):
        version(workspace)
    aliases.promote_version(workspace, "1", YES)
    fill(disk)
    verdict = replace(YES, against="1")
    stopped = attempted(lambda: aliases.promote_version(workspace, "2", verdict))
    (disk / BALLAST).unlink()
    before = registry.find_champion(Workspace(workspace.root))
    done = aliases.promote_version(workspace, "2", verdict)
    after = registry.find_champion(workspace)
    assert before is not None and after is not None
    return stopped | {"champion": before.version, "done": done, "then": after.version}


if __name__ == "__main__":
    what, place, *rest = sys.argv[1:]
    print(json.dumps({"cache": cache, "artifacts": artifacts, "calls": calls}[what](Path(place), *rest)))
