"""The mix of 960 from real rows beside the project, without any response: raw, shortlist, mix, card, twice."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ops.benchmarks.raw import evaluation_questions
from ops.config import Recipe, Setup, load_pool
from ops.core.workspace import Workspace
from ops.curation.decontaminate import leaks
from ops.stages.curation import Mix, materialize_mix, materialize_shortlist
from ops.stages.problems import materialize_raw
from tests.setups import without_workers

SHARED = Path(__file__).parents[3] / "shared" / "benchmarks"
FILES: dict[str, dict[str, list[str]]] = {
    "math500": {"train_file": ["math_train"], "test_file": ["math500"]},
    "mmlu": {"train_file": ["mmlu_val", "mmlu_dev"], "test_file": ["mmlu_test_part"]},
    "rlpr": {"train_file": ["webinstruct_train"], "test_file": ["webinstruct_test"]},
    "livecodebench": {"train_file": ["livecodebench_v1"]},
    "bigcodebench": {"test_file": ["bigcodebench_hard"]},
}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SHARED.is_dir(), reason=f"no real benchmark rows at {SHARED}"),
]


def recipe(folder: Path) -> Recipe:
    """960 problems from the files of `folder`, by proxies."""
    sources = {
        name: {key: [str(folder / f"{file}.jsonl.gz") for file in files] for key, files in own.items()}
        for name, own in FILES.items()
    }
    values: dict[str, Any] = {
        "name": "real",
        "pool": "paper",
        "benchmarks": {name: {"source": "file", **files} for name, files in sources.items()},
        "policy": {"kind": "pretrained", "model": "none"},
        "curation": {"selector": "proxy", "shortlist_factor": 1.25},
    }
    return Recipe.model_validate(values)


CONFIG = Path(__file__).parents[2] / "config"


def curate(root: Path, folder: Path) -> tuple[Workspace, Mix]:
    workspace, settings = Workspace(root), recipe(folder)
    for name in settings.benchmarks:
        materialize_raw(without_workers(workspace, settings), name)
    materialize_shortlist(without_workers(workspace, settings))
    return workspace, materialize_mix(Setup(workspace, settings, load_pool(CONFIG, settings.pool)))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, Mix]:
    return curate(tmp_path_factory.mktemp("real"), SHARED)


def test_the_mix_is_four_times_240_and_clean(made: tuple[Workspace, Mix]) -> None:
    workspace, mix = made
    assert Counter(problem.benchmark for problem in mix.problems) == dict.fromkeys(FILES.keys() - {"bigcodebench"}, 240)
    assert len({(problem.benchmark, problem.id) for problem in mix.problems}) == 960
    by_benchmark = evaluation_questions(workspace, recipe(SHARED))
    held_out = [problem for questions in by_benchmark.values() for problem in questions]
    assert len(held_out) == 500 + 4000 + 949 + 148
    assert leaks(mix.problems, held_out) == []
    pairs = json.loads((workspace.data / "contamination.json").read_text(encoding="utf-8"))["pairs"]
    kinds = {(pair["problem"], pair["other"]): pair["kind"] for pair in pairs if pair["cause"] == "contamination"}
    assert kinds["mmlu/mmlu-val-clinical_knowledge-8", "mmlu/mmlu-test-college_medicine-156"] == "exact"
    assert kinds["rlpr/webinstruct-400", "rlpr/webinstruct-3984"] == "reworded"
    assert set(kinds.values()) == {"exact", "near", "reworded"}


def test_the_mix_covers_subjects_and_levels(made: tuple[Workspace, Mix]) -> None:
    mix = made[1].problems
    assert len({problem.subject for problem in mix if problem.domain == "mmlu"}) == 57
    math = Counter((problem.subject, problem.level) for problem in mix if problem.domain == "math")
    assert len({subject for subject, _ in math}) == 7 and {level for _, level in math} >= {"1", "2", "3", "4", "5"}
    assert set(Counter(problem.level for problem in mix if problem.domain == "code")) == {"easy", "medium", "hard"}


def test_the_card_says_what_was_chosen_and_why(made: tuple[Workspace, Mix]) -> None:
    workspace, mix = made
    card = (workspace.data / "data_card.md").read_text(encoding="utf-8")
    assert card == mix.card
    for words in (
        "960 problems, 240 a domain, seed 0; selector: proxy",
        "**Nothing here was measured**",
        "| mmlu | 1816 in 57 | 300 in 57 | 240 in 57 |",
        "| math500 | contamination | exact | ",
        "| rlpr | contamination | reworded | ",
        "Licence: MIT",
    ):
        assert words in card
    assert "gpqa" not in card.casefold()


def test_it_is_the_same_from_shuffled_files(made: tuple[Workspace, Mix], tmp_path: Path) -> None:
    mix = made[1]
    for file in (SHARED / f"{name}.jsonl.gz" for own in FILES.values() for names in own.values() for name in names):
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            rows = lines.readlines()
        with gzip.open(tmp_path / file.name, "wt", encoding="utf-8", compresslevel=1) as out:
            out.writelines(random.Random(file.name).sample(rows, len(rows)))
    shuffled = curate(tmp_path / "shuffled", tmp_path)[1]
    assert {(p.benchmark, p.id) for p in shuffled.problems} == {(p.benchmark, p.id) for p in mix.problems}
    assert shuffled.card == mix.card


@pytest.mark.soak  # test_data_versions.py: the same bytes again, of a small recipe
def test_it_is_the_same_again(made: tuple[Workspace, Mix], tmp_path: Path) -> None:
    again = curate(tmp_path, SHARED)[0]
    for name in ("shortlist.jsonl", "contamination.json", "training_mix.jsonl", "data_card.md"):
        assert (again.data / name).read_bytes() == (made[0].data / name).read_bytes()
