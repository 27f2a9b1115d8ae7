"""The mix of 960 from real rows beside the project, without any response: raw, shortlist, mix, card, twice.

Also the guards on the mix, unchanged and with an evaluation question planted in it.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from ops.benchmarks.problem_files import read_evaluation_questions, read_problems, write_problems
from ops.config import Setup, load_pool, load_recipe
from ops.core.workspace import Workspace
from ops.curation.decontaminate import find_leaks
from ops.quality import stage_checks
from ops.stages.curation import TrainingMix, materialize_mix, materialize_shortlist
from ops.stages.raw_problems import materialize_raw
from tests.setups import without_workers

ROOT = Path(__file__).resolve().parents[2]
ROWS = ROOT.parent / "shared" / "benchmarks"
TRAINED = {"math500", "mmlu", "rlpr", "livecodebench"}
pytestmark = [
    pytest.mark.long,  # `make test` curates a small recipe, and reads every real row in tests/unit
    pytest.mark.timeout(300),
    pytest.mark.skipif(not ROWS.is_dir(), reason=f"no real benchmark rows at {ROWS}"),
]


class Curated(NamedTuple):
    """The recipe `files` with a choice to make, materialized up to the mix; no worker was called."""

    setup: Setup
    mix: TrainingMix

    @property
    def workspace(self) -> Workspace:
        return self.setup.workspace


def curate(root: Path, rows: Path, per_domain: int = 240) -> Curated:
    """Curate from the files in the folder `rows`."""
    workspace = Workspace(root)
    shutil.copytree(ROOT / "config", workspace.config)
    (root / "benchmarks").symlink_to(rows)
    recipe = load_recipe(workspace.config, "files")
    choice = recipe.curation.model_copy(update={"shortlist_factor": 1.25, "per_domain": per_domain})
    recipe = recipe.model_copy(update={"curation": choice})
    setup = without_workers(workspace, recipe)
    for name in recipe.benchmarks:
        materialize_raw(setup, name)
    materialize_shortlist(setup)
    return Curated(setup, materialize_mix(Setup(workspace, recipe, load_pool(workspace.config, recipe.pool))))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Curated:
    return curate(tmp_path_factory.mktemp("real"), ROWS)


def test_the_mix_is_four_times_240_and_clean(made: Curated) -> None:
    workspace, mix = made.workspace, made.mix
    assert Counter(problem.benchmark for problem in mix.problems) == dict.fromkeys(TRAINED, 240)
    assert len({(problem.benchmark, problem.id) for problem in mix.problems}) == 960
    by_benchmark = read_evaluation_questions(workspace, made.setup.recipe)
    held_out = [problem for questions in by_benchmark.values() for problem in questions]
    assert len(held_out) == 500 + 4000 + 949 + 148
    assert find_leaks(mix.problems, held_out) == []
    pairs = json.loads((workspace.data / "contamination.json").read_text(encoding="utf-8"))["pairs"]
    kinds = {(pair["problem"], pair["other"]): pair["kind"] for pair in pairs if pair["cause"] == "contamination"}
    assert kinds["mmlu/mmlu-val-clinical_knowledge-8", "mmlu/mmlu-test-college_medicine-156"] == "exact"
    assert kinds["rlpr/webinstruct-400", "rlpr/webinstruct-3984"] == "reworded"
    assert set(kinds.values()) == {"exact", "near", "reworded"}


def test_the_mix_covers_subjects_and_levels(made: Curated) -> None:
    mix = made.mix.problems
    assert len({problem.subject for problem in mix if problem.domain == "mmlu"}) == 57
    math = Counter((problem.subject, problem.level) for problem in mix if problem.domain == "math")
    assert len({subject for subject, _ in math}) == 7 and {level for _, level in math} >= {"1", "2", "3", "4", "5"}
    assert set(Counter(problem.level for problem in mix if problem.domain == "code")) == {"easy", "medium", "hard"}


def test_the_card_says_what_was_chosen_and_why(made: Curated) -> None:
    workspace, mix = made.workspace, made.mix
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


def test_it_is_the_same_from_shuffled_files(made: Curated, tmp_path: Path) -> None:
    """On every third row, and those that repeat another."""
    share = 3
    report = json.loads((made.workspace.data / "contamination.json").read_text(encoding="utf-8"))
    pairs = {name.partition("/")[2] for pair in report["pairs"] for name in (pair["problem"], pair["other"])}
    assert len(pairs) > 200
    recipe = (ROOT / "config" / "recipes" / "files.yaml").read_text(encoding="utf-8")
    named = sorted(set(re.findall(r"benchmarks/(\w+\.jsonl\.gz)", recipe)))
    mixes = []
    for order in ("files", "shuffled"):
        (folder := tmp_path / order).mkdir()
        for file in (ROWS / name for name in named):
            with gzip.open(file, "rt", encoding="utf-8") as lines:
                rows = [row for at, row in enumerate(lines) if at % share == 0 or json.loads(row)["id"] in pairs]
            if order == "shuffled":
                random.Random(file.name).shuffle(rows)
            with gzip.open(folder / file.name, "wt", encoding="utf-8", compresslevel=1) as out:
                out.writelines(rows)
        mixes.append(curate(tmp_path / f"{order} curated", folder, 240 // share).mix)
    whole, shuffled = mixes
    assert {(p.benchmark, p.id) for p in shuffled.problems} == {(p.benchmark, p.id) for p in whole.problems}
    assert shuffled.card == whole.card


def test_every_suite_is_green_on_real_rows(made: Curated) -> None:
    setup, workspace = made.setup, made.workspace
    reports = {
        "raw": stage_checks.check_raw_problems(setup),
        "raw gold": stage_checks.check_raw_gold(setup),
        "shortlist": stage_checks.check_shortlist(setup),
        "shortlist gold": stage_checks.check_shortlist_gold(workspace),
        "mix": stage_checks.check_training_mix(setup),
        "mix gold": stage_checks.check_training_mix_gold(workspace),
    }
    assert {name: report.failures for name, report in reports.items() if not report} == {}
    assert reports["mix"].checked == 960
    assert reports["mix gold"].skipped == 240, "LiveCodeBench has no reference programs"
    assert reports["raw"].checked > 16_000


def test_a_damaged_row_of_a_release_is_named(made: Curated) -> None:
    setup, workspace = made.setup, made.workspace
    file = workspace.data / "raw" / "livecodebench-v1-train.jsonl"
    rows = read_problems(file)
    write_problems(file, [replace(rows[0], tests=()), *rows[1:]])
    damaged = stage_checks.check_raw_problems(setup, ["livecodebench"])
    file.unlink()
    gone = stage_checks.check_raw_problems(setup, ["livecodebench"])
    write_problems(file, rows)
    assert f"program without tests: livecodebench/{rows[0].id}" in damaged.failures
    assert [failure for failure in gone.failures if file.name in failure]


def test_an_evaluation_question_in_the_mix_is_named(made: Curated) -> None:
    setup, workspace = made.setup, made.workspace
    file = workspace.data / "training_mix.jsonl"
    mix, held_out = read_problems(file), read_evaluation_questions(workspace, setup.recipe)["math500"]
    respaced = held_out[3].question.replace(" ", "  ").upper()
    planted = replace(held_out[3], id="planted", split="train", question=respaced)
    first = next(index for index, problem in enumerate(mix) if problem.domain == "math")
    write_problems(file, [*mix[:first], planted, *mix[first + 1 :]])
    report = stage_checks.check_training_mix(setup)
    write_problems(file, mix)
    assert report.failures == ["repeats an evaluation question: math500/planted"]


@pytest.mark.soak  # from shuffled files it is the same as well, above
def test_it_is_the_same_again(made: Curated, tmp_path: Path) -> None:
    again = curate(tmp_path / "again", ROWS).workspace
    for name in ("shortlist.jsonl", "contamination.json", "training_mix.jsonl", "data_card.md"):
        assert (again.data / name).read_bytes() == (made.workspace.data / name).read_bytes()
