"""`make mutations` takes minutes; that each of its faults can still be put into the code is seen at once."""

from __future__ import annotations

import yaml

from tests.bench.mutations import FAULTS, ROOT


def test_each_fault_replaces_one_place_of_the_code_and_names_tests_that_exist() -> None:
    areas = yaml.safe_load(FAULTS.read_text(encoding="utf-8"))
    wrong = [
        f"{name}: {old!r}"
        for area in areas
        for name, old, new in area["faults"]
        if (ROOT / name).read_text(encoding="utf-8").count(old) != 1 or old == new
    ]
    assert wrong == []
    assert [test for area in areas for test in area["tests"] if not (ROOT / test).exists()] == []
    assert sum(len(area["faults"]) for area in areas) >= 30
