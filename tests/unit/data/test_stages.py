"""The data stages on small files: raw, shortlist, mix, card; and their files after bad input."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
import yaml

from ops.benchmarks.registry import training_benchmarks
from ops.benchmarks.store import evaluation_questions, not_trained_on, read_problems, unseen_subjects
from ops.config import Recipe, Setup, load_pool, load_recipe
from ops.config.studies import Changes
from ops.core.errors import ConfigError, DataError
from ops.core.rows import ResponseRow, response_file
from ops.core.workspace import Workspace
from ops.curation.selector import SELECTORS
from ops.curation.signal import Tally, tallies
from ops.evaluation.arms import Arm
from ops.evaluation.rows import OutcomeRow
from ops.evaluation.stored_studies import Study
from ops.precaching.precache import write_responses
from ops.stages.curation import materialize_mix, materialize_shortlist
from ops.stages.problems import materialize_raw
from tests.builders import make_response
from tests.command import podium
from tests.setups import without_workers

WORKERS = ("ann", "bob")
ROWS: dict[str, dict[str, Any]] = {
    "math500": {"grader": "math", "answer": "2"},
    "mmlu": {"grader": "mcq", "choices": ["x", "y"], "answer": "A"},
    "rlpr": {"grader": "text", "answer": "two"},
    "livecodebench": {
        "grader": "code",
        "answer": None,
        "tests": [{"kind": "stdin", "input": "1", "output": "2"}],
    },
}


def rows(benchmark: str, split: str, count: int) -> list[dict[str, Any]]:
    return [
        {
            **ROWS[benchmark],
            "id": f"{split}-{i}",
            "question": f"{benchmark} {split} {i}?",
            "subject": f"s{i % 2}",
        }
        for i in range(count)
    ]


@pytest.fixture
def recipe(workspace: Workspace, write_rows: Any) -> Recipe:
    """Four file benchmarks of eight candidates and two test questions, one of which is also a candidate."""
    sources: dict[str, Any] = {}
    for name in training_benchmarks():
        test = rows(name, "test", 2)
        planted = {**test[0], "id": "planted", "question": f"  {test[0]['question'].upper()}"}
        train = write_rows(f"{name}-a.jsonl", [*rows(name, "train", 8), planted])
        held_out = write_rows(f"{name}-b.jsonl.gz", test)
        sources[name] = {"source": "file", "train_file": train.name, "test_file": held_out.name}
    values = {
        "name": "small",
        "pool": "two",
        "benchmarks": sources,
        "policy": {"kind": "scratch"},
        "cold_start": {},
        "curation": {
            "per_domain": 4,
            "shortlist_factor": 1.5,
            # Questions of one template and two workers are too few for a forecast.
            "near_duplicate_jaccard": 1.0,
            "selector": "disagreement",
        },
    }
    for folder, name, content in (
        ("recipes", "small", values),
        ("pools", "two", {"name": "two", "workers": [{"name": w, "model": f"local/{w}"} for w in WORKERS]}),
    ):
        (workspace.config / folder).mkdir(parents=True)
        (workspace.config / folder / f"{name}.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return load_recipe(workspace.config, "small")


def answered(worker: str, benchmark: str, problem: str, **fields: Any) -> ResponseRow:
    return make_response(worker=worker, benchmark=benchmark, problem_id=problem, **fields)


def respond(workspace: Workspace) -> None:
    """Record that both workers solve every problem of subject s0, and only ann solves the others."""
    listed = read_problems(workspace.data / "shortlist.jsonl")
    for worker in WORKERS:
        for name in training_benchmarks():
            scores = {
                p.id: float(p.subject == "s0" or worker == "ann") for p in listed if p.benchmark == name
            }
            rows = [answered(worker, name, problem, score=score) for problem, score in scores.items()]
            write_responses(rows, response_file(workspace.data / "responses", worker, name))


def test_from_raw_rows_to_the_mix(workspace: Workspace, recipe: Recipe) -> None:
    for name in recipe.benchmarks:
        raw = materialize_raw(without_workers(workspace, recipe), name)
        assert (len(raw.train), len(raw.test)) == (9, 2)
        train, test = ("-v1", "-v6") if name == "livecodebench" else ("", "")
        assert [file.name for file in raw.files] == [f"{name}{train}-train.jsonl", f"{name}{test}-test.jsonl"]
    held_out = evaluation_questions(workspace, recipe)
    assert {name: len(questions) for name, questions in held_out.items()} == dict.fromkeys(ROWS, 2)

    listed = materialize_shortlist(without_workers(workspace, recipe))
    assert Counter(p.benchmark for p in listed.problems) == dict.fromkeys(ROWS, 6)
    contamination = json.loads((workspace.data / "contamination.json").read_text(encoding="utf-8"))
    assert {pair["problem"] for pair in contamination["pairs"]} == {f"{name}/planted" for name in ROWS}
    assert read_problems(workspace.data / "shortlist.jsonl") == listed.problems

    respond(workspace)
    mix = materialize_mix(Setup(workspace, recipe, load_pool(workspace.config, recipe.pool)))
    assert Counter(p.benchmark for p in mix.problems) == dict.fromkeys(ROWS, 4)
    assert mix.agreement == {"all": 4, "some": 12}
    assert read_problems(workspace.data / "training_mix.jsonl") == mix.problems
    card = (workspace.data / "data_card.md").read_text(encoding="utf-8")
    assert card == mix.card
    for words in (
        "16 problems, 4 a domain",
        "| math | math500 | math | file | 4 |",
        "| math | 1 | 3 | 0 | 0 |",
        "| math500 | contamination | exact | 1 |",
        "arXiv:2403.07974",
        "not pass@1",
    ):
        assert words in card


def without_subjects(recipe: Recipe, count: int, seed: int = 0) -> Recipe:
    curation = recipe.curation.model_copy(update={"unseen_subjects": count})
    return recipe.model_copy(update={"curation": curation, "seed": seed})


def test_no_candidate_is_of_an_unseen_subject_and_the_seed_draws_them(workspace: Workspace, recipe: Recipe) -> None:
    for name in recipe.benchmarks:
        materialize_raw(without_workers(workspace, recipe), name)
    questions = [each for own in evaluation_questions(workspace, recipe).values() for each in own]
    drawn = set()
    for seed in range(8):
        chosen = without_subjects(recipe, 1, seed)
        unseen = unseen_subjects(workspace, chosen)
        assert {name: len(own) for name, own in unseen.items()} == dict.fromkeys(ROWS, 1)
        listed = materialize_shortlist(without_workers(workspace, chosen)).problems
        assert listed and not any(each.subject in unseen[each.benchmark] for each in listed)
        keys = not_trained_on(workspace, chosen, questions)
        assert keys == {each.key for each in questions if each.subject in unseen[each.benchmark]}
        drawn.add(unseen["mmlu"])
    assert drawn == {frozenset({"s0"}), frozenset({"s1"})}
    assert not_trained_on(workspace, recipe, questions) == frozenset()


def test_a_study_shows_each_seed_s_unseen_subjects_apart(workspace: Workspace, recipe: Recipe) -> None:
    for name in recipe.benchmarks:
        materialize_raw(without_workers(workspace, recipe), name)
    setup = without_workers(workspace, without_subjects(recipe, 1))
    questions = [each for own in evaluation_questions(workspace, recipe).values() for each in own]
    by_seed = {}
    for seed in (3, 4):
        unseen = not_trained_on(workspace, without_subjects(recipe, 1, seed), questions)
        rows = [outcome(each.benchmark, each.id, correct=int(each.key in unseen)) for each in questions]
        by_seed[seed] = [Arm("Conductor", [rows])]
    entry = Changes(kind="changes", title="t", recipe="small", changes={"none": {}})
    found = Study("s", entry).findings(by_seed, setup).summary
    cells = dict(zip(found.head, found.rows[0], strict=True))
    assert (cells["trained subjects, %"], cells["unseen subjects, %"]) == ("0.0 ± 0.0", "100.0 ± 0.0")
    assert "in-domain, %" not in cells


def outcome(benchmark: str, problem: str, correct: int) -> OutcomeRow:
    return OutcomeRow(
        benchmark, problem, 0, "math", correct, True, "", "answered", 1, ("ann",), 10, 0.002, 0.1, "", "", False
    )  # fmt: skip


def test_a_benchmark_keeps_a_subject_to_train_on(workspace: Workspace, recipe: Recipe) -> None:
    for name in recipe.benchmarks:
        materialize_raw(without_workers(workspace, recipe), name)
    with pytest.raises(ConfigError, match=r"curation.unseen_subjects: is 2, and math500 has 2 subjects"):
        materialize_shortlist(without_workers(workspace, without_subjects(recipe, 2)))


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        ("signal", ("## Forecast signal", "not all are right", "assumed to rescue 5%", "| math | mix | 0.")),
        ("proxy", ("## Proxies", "**Nothing here was measured**", "They are guesses", "No responses were used.")),
        ("diversity", ("Coverage alone", "Difficulty was not considered")),
        ("uniform", ("A plain random draw",)),
    ],
)
def test_the_card_says_what_was_preferred_and_why(
    workspace: Workspace, recipe: Recipe, selector: Any, words: tuple[str, ...]
) -> None:
    chosen = recipe.model_copy(update={"curation": recipe.curation.model_copy(update={"selector": selector})})
    for name in chosen.benchmarks:
        materialize_raw(without_workers(workspace, chosen), name)
    materialize_shortlist(without_workers(workspace, chosen))
    if SELECTORS[selector].reads_responses:
        respond(workspace)
    mix = materialize_mix(Setup(workspace, chosen, load_pool(workspace.config, chosen.pool)))
    assert Counter(p.benchmark for p in mix.problems) == dict.fromkeys(ROWS, 4)
    assert f"selector: {selector}" in mix.card and "| math | 9 in 2 | 6 in 2 | 4 in 2 |" in mix.card
    assert [phrase for phrase in words if phrase not in mix.card] == []
    headings = [line for line in mix.card.splitlines() if line.startswith("## ")]
    assert ("## Proxies" in headings, "## Forecast signal" in headings) == (selector == "proxy", selector == "signal")


def test_stages_are_repeatable_to_the_byte(workspace: Workspace, recipe: Recipe) -> None:
    def contents() -> dict[str, bytes]:
        for name in recipe.benchmarks:
            materialize_raw(without_workers(workspace, recipe), name)
        materialize_shortlist(without_workers(workspace, recipe))
        respond(workspace)
        materialize_mix(Setup(workspace, recipe, load_pool(workspace.config, recipe.pool)))
        return {str(file): file.read_bytes() for file in workspace.data.rglob("*") if file.is_file()}

    assert contents() == contents()


def test_commands_run_the_same_stages(
    workspace: Workspace, recipe: Recipe, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PODIUM_ROOT", str(workspace.root))
    assert podium("data", "raw", recipe.name) == 0
    assert podium("data", "shortlist", recipe.name) == 0
    respond(workspace)
    assert podium("data", "mix", recipe.name) == 0
    assert "training mix: 16 problems" in capsys.readouterr().out
    assert podium("data", "mix", "absent") == 1
    assert "absent.yaml: does not exist" in capsys.readouterr().err


def test_files_of_benchmarks_that_left_the_recipe_go(workspace: Workspace, recipe: Recipe) -> None:
    stale = workspace.data / "raw" / "aime25-test.jsonl"
    stale.parent.mkdir(parents=True)
    stale.write_text("{}", encoding="utf-8")
    materialize_raw(without_workers(workspace, recipe), "math500")
    assert [file.name for file in sorted(stale.parent.iterdir())] == [
        "math500-test.jsonl",
        "math500-train.jsonl",
    ]


def test_a_missing_stage_names_its_file(workspace: Workspace, recipe: Recipe) -> None:
    with pytest.raises(DataError, match=r"math500-train\.jsonl"):
        materialize_shortlist(without_workers(workspace, recipe))
    with pytest.raises(DataError, match=r"shortlist\.jsonl"):
        materialize_mix(Setup(workspace, recipe, load_pool(workspace.config, recipe.pool)))
    for name in recipe.benchmarks:
        materialize_raw(without_workers(workspace, recipe), name)
    materialize_shortlist(without_workers(workspace, recipe))
    with pytest.raises(DataError, match=r"ann.*Materialize worker_responses"):
        materialize_mix(Setup(workspace, recipe, load_pool(workspace.config, recipe.pool)))
    assert not (workspace.data / "training_mix.jsonl").exists()


def test_tallies_leave_out_the_unreachable_and_count_refusals_as_wrong() -> None:
    rows = [
        answered("ann", "mmlu", "p", sample=0),
        answered("ann", "mmlu", "p", sample=1, score=0.0),
        answered("ann", "mmlu", "q", status="unreachable", score=0.0),
        answered("ann", "mmlu", "r", status="refused", score=0.0),
        answered("ann", "mmlu", "s", sample=0, status="unreachable", score=0.0),
        answered("ann", "mmlu", "s", sample=1),
        answered("bob", "rlpr", "p"),
    ]
    assert tallies(rows) == {
        "mmlu/p": {"ann": Tally(1.0, 2)},
        "mmlu/r": {"ann": Tally(0.0, 1)},
        "mmlu/s": {"ann": Tally(1.0, 1)},
        "rlpr/p": {"bob": Tally(1.0, 1)},
    }
