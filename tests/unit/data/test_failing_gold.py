"""Gold answers that their graders reject: a few are quarantined, counted and listed; more than a few block."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ops.benchmarks.quarantine import quarantine_file
from ops.benchmarks.store import raw_file, read_problems
from ops.config import Recipe, Setup, load_pool
from ops.core.workspace import Workspace
from ops.quality import stages
from ops.stages.problems import materialize_raw
from ops.versioning.settings import data_settings
from tests.setups import without_workers

Write = Callable[..., Path]
CONFIG = Workspace.find().config
MISSED = "Answer: two"
"""A readable answer that the grader does not find in "Answer: Answer: two"."""


def recipe(file: Path, benchmark: str = "rlpr", **source: Any) -> Recipe:
    split = "test_file" if benchmark == "gpqa_diamond" else "train_file"
    sources = {benchmark: {"source": "file", split: file.name, **source}}
    values = {"name": "gold", "pool": "quickstart", "benchmarks": sources, "policy": {"kind": "scratch"}}
    return Recipe.model_validate(values | {"cold_start": {}})


def rows(failing: int, sound: int = 200) -> list[dict[str, Any]]:
    answers = [MISSED] * failing + ["two"] * (sound - failing)
    return [{"id": f"q{i}", "question": f"Question {i}?", "answer": answer} for i, answer in enumerate(answers)]


def test_a_few_failing_rows_are_quarantined_and_the_gate_passes(workspace: Workspace, write_rows: Write) -> None:
    chosen = recipe(write_rows("rows.jsonl", rows(2)))
    setup = without_workers(workspace, chosen)
    raw = materialize_raw(setup, "rlpr")
    assert (len(raw.train), raw.failing_gold, raw.quarantined) == (198, 2, 0)
    assert [problem.id for problem in raw.train] == [f"q{i}" for i in range(2, 200)]
    assert read_problems(raw_file(workspace, chosen, "rlpr", "train")) == raw.train
    [file] = raw.quarantine
    entries = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [(entry["kind"], entry["row"]["id"], entry["column"]) for entry in entries] == [
        ("failing gold", "q0", "answer"),
        ("failing gold", "q1", "answer"),
    ]
    assert all("rejected by the grader text" in entry["reason"] and entry["remedy"] for entry in entries)
    report = stages.raw_gold(setup)
    assert (report.success, report.checked, report.set_aside) == (True, 198, 2)
    assert report.summary == "198 rows checked; 2 set aside before, their gold answers failed"


def test_more_than_the_share_block_as_before_and_none_is_left_out(workspace: Workspace, write_rows: Write) -> None:
    setup = without_workers(workspace, recipe(write_rows("rows.jsonl", rows(3))))
    raw = materialize_raw(setup, "rlpr")
    assert (len(raw.train), raw.failing_gold, raw.quarantine) == (200, 0, ())
    report = stages.raw_gold(setup)
    assert (report.success, report.set_aside, len(report.failures)) == (False, 0, 3)
    assert report.failures[0].startswith("rlpr/q0: gold answer ")


@pytest.mark.parametrize(("share", "left"), [(0.0, 200), (0.015, 197)])
def test_the_share_is_the_recipes(workspace: Workspace, write_rows: Write, share: float, left: int) -> None:
    failing = 3 if share else 1
    chosen = recipe(write_rows("rows.jsonl", rows(failing)), max_failing_gold_share=share)
    assert len(materialize_raw(without_workers(workspace, chosen), "rlpr").train) == left


def test_a_load_without_any_leaves_no_list_behind(workspace: Workspace, write_rows: Write) -> None:
    for failing in (1, 0):
        setup = without_workers(workspace, recipe(write_rows("rows.jsonl", rows(failing))))
        materialize_raw(setup, "rlpr")
        assert quarantine_file(workspace, "rlpr", "train").exists() == bool(failing)
    assert stages.raw_gold(setup).summary == "200 rows checked"


def test_malformed_rows_are_counted_apart(workspace: Workspace, write_rows: Write) -> None:
    malformed = {"id": "empty", "question": "Question?", "answer": ""}
    setup = without_workers(workspace, recipe(write_rows("rows.jsonl", [*rows(1), malformed])))
    raw = materialize_raw(setup, "rlpr")
    assert (len(raw.train), raw.quarantined, raw.failing_gold) == (199, 1, 1)
    assert len(raw.quarantine[0].read_text(encoding="utf-8").splitlines()) == 2
    assert stages.raw_gold(setup).set_aside == 1


def test_recorded_data_settings_contain_the_share_only_if_it_was_changed(write_rows: Write) -> None:
    pool, file = load_pool(CONFIG, "quickstart"), write_rows("rows.jsonl", rows(0))
    unsaid, said = (data_settings(recipe(file, **source), pool) for source in ({}, {"max_failing_gold_share": 0.02}))
    assert "max_failing_gold_share" not in unsaid["benchmarks"]["rlpr"]
    assert said["benchmarks"]["rlpr"] == unsaid["benchmarks"]["rlpr"] | {"max_failing_gold_share": 0.02}


def test_a_confidential_row_is_listed_by_its_id_alone(
    workspace: Workspace, write_rows: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ops.stages import problems

    grade = problems.grade_gold
    monkeypatch.setattr(
        problems,
        "grade_gold",
        lambda given: [each._replace(score=0.0) if i == 0 else each for i, each in enumerate(grade(given))],
    )
    shape = {"choices": ["zephyr", "y"], "answer": "A"}
    listed = [{"id": f"rec{i}", "question": f"zephyr {i}?", **shape} for i in range(200)]
    setup: Setup = without_workers(workspace, recipe(write_rows("rows.jsonl", listed), "gpqa_diamond"))
    raw = materialize_raw(setup, "gpqa_diamond")
    assert raw.failing_gold == 1
    text = raw.quarantine[0].read_text(encoding="utf-8")
    assert json.loads(text)["id"] == "rec0" and "zephyr" not in text
