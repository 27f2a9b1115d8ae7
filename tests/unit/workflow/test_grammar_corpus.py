"""Real completions of models and their required parse: the corpus is in `corpus/`, with the reasons."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from ops.workflow.grammar import Step, Workflow, parse
from ops.workflow.literals import FormatFailure
from ops.workflow.strategy import SHAPES
from tests.bench.pictures import AGGREGATE

CORPUS = Path(__file__).parent / "corpus"
TIMES = re.compile(r"\{(\d+) times: (.*?)\}", re.DOTALL)
"""`{300 times: 1, }` in a text represents a long repetition."""


class Case(NamedTuple):
    file: str
    name: str
    why: str
    text: str
    mode: dict[str, Any]
    reads: Workflow | None
    fails: FormatFailure | None


@cache
def corpus() -> list[Case]:
    cases = []
    for file in sorted(CORPUS.glob("*.yaml")):
        for row in yaml.safe_load(file.read_text(encoding="utf-8")):
            assert set(row) <= {"name", "why", "text", "mode", "reads", "fails"}, row
            steps = None if "reads" not in row else Workflow(tuple(step(*fields) for fields in row["reads"]))
            failure = FormatFailure(row["fails"]) if "fails" in row else None
            text = TIMES.sub(lambda match: match[2] * int(match[1]), row["text"])
            cases.append(Case(file.stem, row["name"], row["why"], text, row.get("mode", {}), steps, failure))
    return cases


def step(worker: int, subtask: str, access: str | list[int] = "none") -> Step:
    return Step(worker, subtask, tuple(access) if isinstance(access, list) else access)  # type: ignore[arg-type]


@pytest.mark.parametrize("case", corpus(), ids=lambda case: f"{case.file}: {case.name}")
def test_reading(case: Case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a model's backslashes must not cause warnings of Python
        parsed = parse(case.text, **{"offered": 6, **case.mode})
    assert parsed.workflow == case.reads, f"{case.why} Got {parsed.failure}: {parsed.detail}"
    assert parsed.failure == case.fails, f"{case.why} Got {parsed.detail}"
    assert bool(parsed.detail) == (case.fails is not None)


def test_corpus_is_whole() -> None:
    names = Counter(case.name for case in corpus())
    assert names.total() >= 150
    assert not [name for name, times in names.items() if times > 1]
    assert len({case.text for case in corpus()}) >= 150
    for case in corpus():
        assert (case.reads is None) != (case.fails is None), case.name
        assert case.why.endswith("."), case.name
    assert {case.fails for case in corpus()} - {None} == set(FormatFailure) - {FormatFailure.CUT_OFF}


def test_exact_form_that_the_policy_learns() -> None:
    two = Workflow((Step(1, "Find x."), Step(0, "Compute it.", "all")))
    assert two.render() == (
        'model_id = [1, 0]\nsubtasks = ["Find x.", "Compute it."]\naccess_list = [[], ["all"]]'
    )
    assert Workflow(()).render() == "model_id = []\nsubtasks = []\naccess_list = []"


def test_the_page_explains_every_reason_mode_and_shape() -> None:
    page = (Path(__file__).parents[3] / "docs" / "method.md").read_text(encoding="utf-8")
    for name in (*FormatFailure, *SHAPES, "binary", "fine_grained"):
        assert f"`{name}`" in page or f": {name}`" in page, name
    block = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert block is not None
    assert parse(block[1], offered=7).workflow == AGGREGATE
