"""Real benchmark rows beside the project: every file is read, gold answers hold, contamination is found."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from ops.benchmarks.problem_files import read_evaluation_questions, read_training_candidates
from ops.benchmarks.quarantine import quarantine_file
from ops.config import load_recipe
from ops.core.problem import Problem, Split
from ops.core.workspace import Workspace
from ops.curation.decontaminate import find_leaks
from ops.quality import check_gold, check_problems
from tests.setups import without_workers
from tests.unit.data.inputs import materialize_all, read_files

CONFIG = Workspace.find().config


def load(folder: Path, benchmark: str, split: Split, file: str) -> list[Problem]:
    return read_files(Workspace(folder), benchmark, split, f"{file}.jsonl.gz")


def test_every_file_that_the_recipe_names_is_there(shared: Path) -> None:
    recipe = (CONFIG / "recipes" / "files.yaml").read_text(encoding="utf-8")
    named = set(re.findall(r"benchmarks/(\w+\.jsonl\.gz)", recipe))
    assert len(named) == 9 and named <= {file.name for file in shared.glob("*.gz")}


@pytest.mark.long
def test_the_files_recipe_loads_them_and_quarantines_two_rows(shared: Path, workspace: Workspace) -> None:
    shutil.copytree(CONFIG, workspace.config)
    (workspace.root / "benchmarks").symlink_to(shared)
    recipe = load_recipe(workspace.config, "files")
    raw = materialize_all(without_workers(workspace, recipe))
    assert {name: (len(splits.train), len(splits.test), splits.quarantined) for name, splits in raw.items()} == {
        "math500": (7498, 500, 2),
        "mmlu": (1816, 4000, 0),
        "rlpr": (1971, 949, 0),
        "livecodebench": (400, 0, 0),
        "bigcodebench": (0, 148, 0),
    }
    for splits in raw.values():
        for problems in (splits.train, splits.test):
            assert not problems or check_problems(problems[:300]).failures == []
    listed = quarantine_file(workspace, "math500", "train").read_text(encoding="utf-8").splitlines()
    reasons = [(entry["line"], entry["column"], entry["reason"]) for entry in map(json.loads, listed)]
    assert reasons == [(5342, "answer", "is empty"), (5344, "answer", "is empty")]
    assert Counter(problem.level for problem in raw["math500"].train)["5"] == 2302
    sources = {problem.source.partition(" via")[0] for problem in raw["livecodebench"].train}
    assert sources == {"LiveCodeBench release_v1"}
    assert len(read_training_candidates(workspace, recipe)) == 7498 + 1816 + 1971 + 400
    assert sum(map(len, read_evaluation_questions(workspace, recipe).values())) == 500 + 4000 + 949 + 148


def test_real_choices_and_formulas_grade_their_own_gold(shared: Path) -> None:
    choices = load(shared, "mmlu", "train", "mmlu_dev")
    formulas = load(shared, "math500", "test", "math500")[:60]
    assert check_gold([*choices, *formulas]).failures == []


# ── contamination ────────────────────────────────────────────────────────────

SYNONYMS = {
    "find": "determine", "compute": "calculate", "evaluate": "compute", "determine": "find", "what": "which",
    "number": "count", "sum": "total", "total": "overall", "simplify": "reduce", "express": "write",
    "distinct": "different", "smallest": "least", "largest": "greatest", "greatest": "largest", "least": "smallest",
    "each": "every", "has": "possesses", "gives": "yields", "area": "surface area", "length": "extent",
    "contains": "includes", "points": "locations", "equation": "relation", "people": "persons", "buy": "purchase",
    "costs": "is priced at", "such": "so", "shown": "depicted", "below": "underneath", "if": "when",
    "answer": "result", "given": "provided", "possible": "feasible", "function": "mapping", "solve": "work out",
    "round": "approximate", "nearest": "closest", "value": "quantity", "integer": "whole number",
    "integers": "whole numbers", "equal": "identical", "ways": "manners", "between": "amid",
}  # fmt: skip
"""Some change more than a careful editor would; the measured figure includes such misses."""


def respaced(question: str, chance: random.Random) -> str:
    """Change white space, case, spaces in formulas and the final stop."""
    words = question.replace(" = ", r"\, =\; ").replace("\\frac", chance.choice(("\\frac", "\\dfrac"))).split(" ")
    return "".join(word + chance.choice((" ", "  ", "\n", "\t ")) for word in words).strip().rstrip(".?").swapcase()


def reworded(question: str, chance: random.Random) -> str:
    """Swap two words for synonyms, add a greeting or a request, change the final punctuation."""
    words = question.split(" ")
    able = [place for place, word in enumerate(words) if word.casefold().strip(".,?") in SYNONYMS]
    for place in chance.sample(able, min(2, len(able))):
        word = SYNONYMS[words[place].casefold().strip(".,?")]
        words[place] = word.capitalize() if words[place][:1].isupper() else word
    text = " ".join(words).rstrip(".?")
    before = chance.choice(("", "Hello! ", "Please help me with this: ", "I would like to know the following. "))
    return before + text + chance.choice((".", "?", " Thank you.", " Thanks!"))


@pytest.mark.long
def test_planted_math500_is_found_in_the_real_training_rows(shared: Path) -> None:
    clean = load(shared, "math500", "train", "math_train")
    held_out = load(shared, "math500", "test", "math500")
    planted: dict[str, Problem] = {}
    for place, problem in enumerate(held_out):
        chance = random.Random(place)
        for way, text in (
            ("verbatim", problem.question),
            ("respaced", respaced(problem.question, chance)),
            ("reworded", reworded(problem.question, chance)),
        ):
            planted[f"math500/{way}-{place}"] = replace(problem, id=f"{way}-{place}", split="train", question=text)
    assert sum(p.question != held_out[int(p.id.split("-")[1])].question for p in planted.values()) >= 990
    repeats = {item.problem: item for item in find_leaks([*clean, *planted.values()], held_out)}
    recall = Counter(name.split("/")[1].split("-")[0] for name in repeats if name in planted)
    assert (recall["verbatim"], recall["respaced"]) == (500, 500)
    assert recall["reworded"] >= 480, f"{recall['reworded']} of 500 rewordings found"
    kinds = {way: Counter(repeats[n].kind for n in planted if f"/{way}-" in n and n in repeats) for way in recall}
    assert set(kinds["verbatim"]) == set(kinds["respaced"]) == {"exact"}
    assert kinds["reworded"]["reworded"] > kinds["reworded"]["near"] > 0
    # Of 7,500 clean rows: real repetitions, and questions that differ in one word. None by id or by equal text.
    wrong = {name: item.kind for name, item in repeats.items() if name not in planted}
    assert set(wrong.values()) <= {"near", "reworded"} and len(wrong) <= 40


@pytest.mark.long
def test_evaluation_questions_inside_webinstruct_train_are_found(shared: Path) -> None:
    train = load(shared, "rlpr", "train", "webinstruct_train")
    held_out = load(shared, "rlpr", "test", "webinstruct_test")
    repeats = find_leaks(train, held_out)
    # The shipped test rows have no exact repetitions; these are the remaining ones.
    assert Counter(item.kind for item in repeats)["exact"] == 0
    assert ("rlpr/webinstruct-400", "rlpr/webinstruct-3984") in {(item.problem, item.other) for item in repeats}
    assert 8 <= len(repeats) <= 30
    planted = [replace(held_out[place], id=f"copy-{place}", split="train") for place in range(0, 949, 31)]
    names = {item.problem for item in find_leaks([*train, *planted], held_out)}
    assert len(planted) == 31 and {f"rlpr/copy-{place}" for place in range(0, 949, 31)} <= names


@pytest.mark.long
def test_evaluation_questions_inside_mmlus_training_rows_are_found(shared: Path) -> None:
    repeats = find_leaks(load(shared, "mmlu", "train", "mmlu_val"), load(shared, "mmlu", "test", "mmlu_test_part"))
    known = ("mmlu/mmlu-val-clinical_knowledge-8", "mmlu/mmlu-test-college_medicine-156")
    assert {(item.problem, item.other): item.kind for item in repeats}[known] == "exact"
    assert 10 <= len(repeats) <= 40
