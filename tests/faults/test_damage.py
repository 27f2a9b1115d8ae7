"""Files of a finished workspace are damaged: each command gives the numbers from before, or names the file and a remedy
that works (`tests/bench/damage.py`, whose whole table is `make damage`).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.bench.damage import DAMAGES, Bench, Known, cell, kind, kinds, known, table

DANGEROUS = (
    (r"policies/mini-KEY/model\.safetensors$", "overwritten", "run"),
    (r"runs/mini-KEY/policy/model\.safetensors$", "overwritten", "run"),
    (r"runs/mini-KEY/result\.json$", "cut in half", "run"),
    (r"runs/mini-KEY/curve\.jsonl$", "overwritten", "report"),
    (r"runs/mini-KEY/run\.json$", "a folder", "run"),
    (r"snapshots/KEY\.json$", "overwritten", "run"),
    (r"cache/responses\.sqlite$", "cut in half", "ask"),
    (r"models/m-KEY/artifacts/artifacts/policy/model\.safetensors$", "overwritten", "ask"),
    (r"artifacts/KEY/artifacts/verdict\.json$", "overwritten", "run"),
    (r"scores/conductor/\*/\*\.parquet$", "overwritten", "report"),
    (r"scores/cold_start/\*/\*\.parquet$", "deleted", "report"),
)
"""Patterns of kinds, with the damage and the command that would publish false numbers, stop for good, or pay again."""


@pytest.mark.parametrize(("path", "of"), [
    ("data/responses/solver/mmlu.parquet", "data/responses/*/*.parquet"),
    (".podium/runs/mini-0123456789ab/checkpoints/checkpoint-120/optimizer.pt",
     ".podium/runs/mini-KEY/checkpoints/checkpoint-N/optimizer.pt"),
    (".podium/scores/conductor/mini-0123456789ab/mmlu.parquet", ".podium/scores/conductor/*/*.parquet"),
    (".podium/policies/mini-0123456789ab/config.json", ".podium/policies/mini-KEY/config.json"),
])  # fmt: skip
def test_files_that_differ_only_in_a_key_are_one_kind(path: str, of: str) -> None:
    assert kind(path) == of


def test_a_damage_changes_the_file_and_nothing_beside_it(tmp_path: Path) -> None:
    for number, (name, damage) in enumerate(DAMAGES.items()):
        file = tmp_path / str(number)
        file.write_bytes(bytes(1000))
        damage(file)
        assert not file.is_file() or file.read_bytes() != bytes(1000), name


def test_lines_that_change_by_themselves_are_no_difference() -> None:
    before = Known(["solver 72.3", "took 3 s"], {"took 0 s"}, None)
    assert before.differences(["solver 72.3", "took 9 s"]) == []
    assert before.differences(["solver 71.5", "took 9 s"]) == ["- solver 72.3", "+ solver 71.5"]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    made = Bench(tmp_path_factory.mktemp("damage") / "project")
    made.make()
    made.keep()
    return made


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_most_dangerous_damage_is_no_result(bench: Bench) -> None:
    before, files = known(bench), kinds(bench.root)
    cells = []
    for pattern, damage, command in DANGEROUS:
        [(name, file)] = [(name, file) for name, file in files.items() if re.search(pattern, name)]
        cells.append(cell(bench, name, file, damage, command, before[command]))
    assert not [each for each in cells if each.is_wrong], "\n".join([*table(cells), *map(str, cells)])
