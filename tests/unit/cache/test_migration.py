"""Files of earlier schemas are brought up to date, and files of later ones are left alone."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from ops.cache import ResponseCache, cache_key, cache_material
from ops.cache.admin import holdings
from ops.cache.misses import why_miss
from ops.cache.rows import encode
from ops.core.errors import DataError, OverBudget
from ops.core.response import Response
from ops.spending.ledger import Bill, Departure, Ledger

IDENTITY = {"model": "openai/some-model", "temperature": 0.2}
OLD_CACHE = """
CREATE TABLE responses (
    key TEXT PRIMARY KEY, response TEXT NOT NULL, checksum TEXT NOT NULL, material TEXT NOT NULL
);
"""
OLD_LEDGER = """
CREATE TABLE spending (
    run TEXT, purpose TEXT, worker TEXT, month TEXT,
    calls INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
    usd REAL NOT NULL, PRIMARY KEY (run, purpose, worker, month)
) WITHOUT ROWID;
CREATE TABLE blocks (
    id INTEGER PRIMARY KEY, run TEXT NOT NULL, pid INTEGER NOT NULL, started REAL NOT NULL, usd REAL NOT NULL
);
INSERT INTO spending VALUES ('run', 'precache', 'w', '2026-01', 3, 30, 15, 0.75);
"""


def messages(number: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"Question {number}"}]


def old_cache(folder: Path, entries: int = 50) -> None:
    """A cache as it was written before there were versions."""
    with sqlite3.connect(folder / "responses.sqlite") as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.executescript(OLD_CACHE)
        for number in range(entries):
            body, checksum = encode(Response(f"text {number}", 1, 1, 0.0, 0.0, "stop"))
            key, material = (make(IDENTITY, messages(number), 0) for make in (cache_key, cache_material))
            connection.execute("INSERT INTO responses VALUES (?, ?, ?, ?)", (key, body.decode(), checksum, material))
    connection.close()


def version(file: Path) -> int:
    connection = sqlite3.connect(file)
    try:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])
    finally:
        connection.close()


def test_an_old_cache_answers_and_learns_what_it_lacked(tmp_path: Path) -> None:
    old_cache(tmp_path)
    before = time.time()
    cache = ResponseCache(tmp_path)
    for number in range(50):
        response = cache.get(cache_key(IDENTITY, messages(number), 0))
        assert response is not None
        assert response.text == f"text {number}"
    [held] = holdings(cache)
    assert (held.model, held.entries) == ("openai/some-model", 50)
    assert before - 1 <= held.oldest <= time.time()
    [difference] = why_miss(cache, IDENTITY | {"temperature": 1.0}, messages(7)).differences
    assert difference.field == "worker.temperature"
    assert version(tmp_path / "responses.sqlite") > 0
    assert cache.backend.claim("new key")[0] is not None


def test_a_new_cache_and_an_old_one_end_with_the_same_schema(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    old_cache(tmp_path / "old")
    schemas = []
    for name in ("old", "new"):
        ResponseCache(tmp_path / name).get("x")
        connection = sqlite3.connect(tmp_path / name / "responses.sqlite")
        columns = connection.execute("SELECT name, type FROM pragma_table_info('responses')").fetchall()
        indices = connection.execute("SELECT name FROM sqlite_master WHERE type = 'index' ORDER BY name").fetchall()
        schemas.append((columns, indices))
        connection.close()
    assert schemas[0] == schemas[1]


_OPEN = """
    import sys
    from pathlib import Path
    from ops.cache import ResponseCache
    print(len(ResponseCache(Path(sys.argv[1]))))
"""


def test_processes_that_meet_an_old_cache_together_migrate_it_once(tmp_path: Path) -> None:
    old_cache(tmp_path, entries=3000)
    command = [sys.executable, "-c", textwrap.dedent(_OPEN), str(tmp_path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [process.communicate(timeout=100)[0].strip() for process in running] == ["3000"] * 4
    assert sum(holding.entries for holding in holdings(ResponseCache(tmp_path))) == 3000


def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    old_cache(tmp_path)
    file = tmp_path / "responses.sqlite"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE identities (in_the_way TEXT)")
    connection.close()
    with pytest.raises(sqlite3.OperationalError, match="identities"):
        ResponseCache(tmp_path).get("x")
    with sqlite3.connect(file) as connection:
        assert connection.execute("SELECT count(*) FROM responses").fetchone() == (50,)
        assert "created" not in [row[1] for row in connection.execute("PRAGMA table_info(responses)")]
        connection.execute("DROP TABLE identities")
    connection.close()
    assert len(ResponseCache(tmp_path)) == 50


@pytest.mark.parametrize("what", ["cache", "ledger"])
def test_a_file_of_a_later_version_is_not_touched(tmp_path: Path, what: str) -> None:
    file = tmp_path / ("responses.sqlite" if what == "cache" else "ledger.sqlite")
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE something (else_ TEXT)")
        connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(DataError, match=r"sqlite: schema: is version 99.*Update Podium"):
        ResponseCache(tmp_path).get("key") if what == "cache" else Ledger(file).spent("run")
    assert version(file) == 99
    assert [path.name for path in tmp_path.glob("*damaged*")] == []


def test_an_old_ledger_keeps_its_sums_and_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "ledger.sqlite"
    with sqlite3.connect(file) as connection:
        connection.executescript(OLD_LEDGER)
    connection.close()
    ledger = Ledger(file)
    assert ledger.spent("run") == 0.75
    with pytest.raises(OverBudget):
        ledger.reserve("run", 0.5, 1.0)
    ledger.settle(Bill(ledger.reserve("run", 0.25, 1.0), "training", "w", 0.2, 4, 2))
    assert ledger.by_purpose("run")["precache"].calls == 3
    [call] = ledger.latest(10)
    assert (call.purpose, call.usd, call.prompt_tokens) == ("training", 0.2, 4)
    ledger.lose(*ledger.mark_sent(Departure(ledger.reserve("run", 0.03, 1.0), "training", "w", "key")))
    assert (ledger.by_run()["run"].lost, ledger.spent("run")) == (1, pytest.approx(0.98))
