"""The data stages on small files (raw, shortlist, mix, card), what they leave after bad input, and their files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.benchmarks.problem_files import (
    draw_unseen_subjects,
    find_untrained_questions,
    read_evaluation_questions,
    read_problems,
    write_problems,
)
from ops.benchmarks.registry import training_benchmarks
from ops.config import Setup
from ops.config.studies import Changes
from ops.core.errors import ConfigError, DataError
from ops.core.problem import CodeTest, Problem
from ops.core.response_rows import ResponseRow, response_file
from ops.core.workspace import Workspace
from ops.curation.selector import SELECTORS
from ops.curation.training_signal import Tally, tally_responses
from ops.evaluation.arms import Arm
from ops.evaluation.stored_studies import Study
from ops.precaching.precache import write_responses
from ops.stages.curation import TrainingMix, materialize_mix, materialize_shortlist
from tests.builders import make_response
from tests.command import podium
from tests.releases import scored
from tests.unit.data.inputs import make, materialize_all, write_rows

WORKERS = ("ann", "bob")
STDIN = {"kind": "stdin", "input": "1", "output": "2"}
ROWS: dict[str, dict[str, Any]] = {
    "math500": {"grader": "math", "answer": "2"},
    "mmlu": {"grader": "mcq", "choices": ["x", "y"], "answer": "A"},
    "rlpr": {"grader": "text", "answer": "two"},
    "livecodebench": {"grader": "code", "answer": None, "tests": [STDIN]},
}


def rows(benchmark: str, split: str, count: int) -> list[dict[str, Any]]:
    row = ROWS[benchmark]
    return [
        {**row, "id": f"{split}-{i}", "question": f"{benchmark} {split} {i}?", "subject": f"s{i % 2}"}
        for i in range(count)
    ]


@pytest.fixture
def setup(workspace: Workspace) -> Setup:
    """Four file benchmarks of eight candidates and two test questions, one of which is also a candidate."""
    sources: dict[str, Any] = {}
    for name in training_benchmarks():
        test = rows(name, "test", 2)
        planted = {**test[0], "id": "planted", "question": f"  {test[0]['question'].upper()}"}
        train = write_rows(workspace.root / f"{name}-a.jsonl", [*rows(name, "train", 8), planted])
        held_out = write_rows(workspace.root / f"{name}-b.jsonl.gz", test)
        sources[name] = {"source": "file", "train_file": train, "test_file": held_out}
    # Questions of one template and two workers are too few for a forecast.
    unlike = {"near_duplicate_jaccard": 1.0, "selector": "disagreement"}
    values = {"name": "small", "pool": "two", "benchmarks": sources, "policy": {"kind": "scratch"}, "cold_start": {}}
    values["curation"] = unlike | {"per_domain": 4, "shortlist_factor": 1.5}
    pool = {"name": "two", "workers": [{"name": worker, "model": f"local/{worker}"} for worker in WORKERS]}
    for name, content in (("recipes/small", values), ("pools/two", pool)):
        file = workspace.config / f"{name}.yaml"
        file.parent.mkdir(parents=True)
        file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return Setup.read(workspace, "small")


def answered(worker: str, benchmark: str, problem: str, **fields: Any) -> ResponseRow:
    return make_response(worker=worker, benchmark=benchmark, problem_id=problem, **fields)


def respond(workspace: Workspace) -> None:
    """Record that both workers solve every problem of subject s0, and only ann solves the others."""
    listed = read_problems(workspace.data / "shortlist.jsonl")
    for worker in WORKERS:
        for name in training_benchmarks():
            own = {p.id: float(p.subject == "s0" or worker == "ann") for p in listed if p.benchmark == name}
            rows = [answered(worker, name, problem, score=score) for problem, score in own.items()]
            write_responses(rows, response_file(workspace.data / "responses", worker, name))


def mix_of(setup: Setup) -> TrainingMix:
    """Run every stage up to the mix."""
    materialize_all(setup)
    materialize_shortlist(setup)
    if SELECTORS[setup.recipe.curation.selector].reads_responses:
        respond(setup.workspace)
    return materialize_mix(setup)


def curated(setup: Setup, seed: int = 0, **changes: Any) -> Setup:
    """The setup with another curation."""
    curation = setup.recipe.curation.model_copy(update=changes)
    return replace(setup, recipe=setup.recipe.model_copy(update={"curation": curation, "seed": seed}))


def asked(setup: Setup) -> list[Problem]:
    """Every question of the evaluation."""
    questions = read_evaluation_questions(setup.workspace, setup.recipe)
    return [each for own in questions.values() for each in own]


def test_from_raw_rows_to_the_mix(workspace: Workspace, setup: Setup) -> None:
    for name, raw in materialize_all(setup).items():
        assert (len(raw.train), len(raw.test)) == (9, 2)
        train, test = ("-v1", "-v6") if name == "livecodebench" else ("", "")
        assert [file.name for file in raw.files] == [f"{name}{train}-train.jsonl", f"{name}{test}-test.jsonl"]
    held_out = read_evaluation_questions(workspace, setup.recipe)
    assert {name: len(questions) for name, questions in held_out.items()} == dict.fromkeys(ROWS, 2)

    listed = materialize_shortlist(setup)
    assert Counter(p.benchmark for p in listed.problems) == dict.fromkeys(ROWS, 6)
    contamination = json.loads((workspace.data / "contamination.json").read_text(encoding="utf-8"))
    assert {pair["problem"] for pair in contamination["pairs"]} == {f"{name}/planted" for name in ROWS}
    assert read_problems(workspace.data / "shortlist.jsonl") == listed.problems

    respond(workspace)
    mix = materialize_mix(setup)
    assert Counter(p.benchmark for p in mix.problems) == dict.fromkeys(ROWS, 4)
    assert mix.agreement == {"all": 4, "some": 12}
    assert read_problems(workspace.data / "training_mix.jsonl") == mix.problems
    card = (workspace.data / "data_card.md").read_text(encoding="utf-8")
    assert card == mix.card
    words = ["16 problems, 4 a domain", "| math | math500 | math | file | 4 |", "| math | 1 | 3 | 0 | 0 |"]
    words += ["| math500 | contamination | exact | 1 |", "arXiv:2403.07974", "not pass@1"]
    assert [phrase for phrase in words if phrase not in card] == []


def test_no_candidate_is_of_an_unseen_subject_and_the_seed_draws_them(workspace: Workspace, setup: Setup) -> None:
    materialize_all(setup)
    questions = asked(setup)
    drawn = set()
    for seed in range(8):
        chosen = curated(setup, seed, unseen_subjects=1)
        unseen = draw_unseen_subjects(workspace, chosen.recipe)
        assert {name: len(own) for name, own in unseen.items()} == dict.fromkeys(ROWS, 1)
        listed = materialize_shortlist(chosen).problems
        assert listed and not any(each.subject in unseen[each.benchmark] for each in listed)
        keys = find_untrained_questions(workspace, chosen.recipe, questions)
        assert keys == {each.key for each in questions if each.subject in unseen[each.benchmark]}
        drawn.add(unseen["mmlu"])
    assert drawn == {frozenset({"s0"}), frozenset({"s1"})}
    assert find_untrained_questions(workspace, setup.recipe, questions) == frozenset()
    with pytest.raises(ConfigError, match=r"curation.unseen_subjects: is 2, and math500 has 2 subjects"):
        materialize_shortlist(curated(setup, unseen_subjects=2))


def test_a_study_shows_each_seed_s_unseen_subjects_apart(workspace: Workspace, setup: Setup) -> None:
    materialize_all(setup)
    questions = asked(setup)
    [row] = scored(1, ["mmlu"], questions=1)
    by_seed = {}
    for seed in (3, 4):
        unseen = find_untrained_questions(workspace, curated(setup, seed, unseen_subjects=1).recipe, questions)
        rows = [
            replace(row, benchmark=each.benchmark, problem_id=each.id, correct=int(each.key in unseen))
            for each in questions
        ]
        by_seed[seed] = [Arm("Conductor", [rows])]
    entry = Changes(kind="changes", title="t", recipe="small", changes={"none": {}})
    found = Study("s", entry).summarize(by_seed, curated(setup, unseen_subjects=1)).summary
    cells = dict(zip(found.head, found.rows[0], strict=True))
    assert (cells["trained subjects, %"], cells["unseen subjects, %"]) == ("0.0 (0.0 … 39.7)", "100.0 (60.3 … 100.0)")
    assert "in-domain, %" not in cells


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        ("signal", ("## Forecast signal", "not all are right", "assumed to rescue 5%", "| math | mix | 0.")),
        ("proxy", ("## Proxies", "**Nothing here was measured**", "They are guesses", "No responses were used.")),
        ("diversity", ("Coverage alone", "Difficulty was not considered")),
        ("uniform", ("A plain random draw",)),
    ],
)
def test_the_card_says_what_was_preferred_and_why(setup: Setup, selector: Any, words: tuple[str, ...]) -> None:
    mix = mix_of(curated(setup, selector=selector))
    assert Counter(p.benchmark for p in mix.problems) == dict.fromkeys(ROWS, 4)
    assert f"selector: {selector}" in mix.card and "| math | 9 in 2 | 6 in 2 | 4 in 2 |" in mix.card
    assert [phrase for phrase in words if phrase not in mix.card] == []
    headings = [line for line in mix.card.splitlines() if line.startswith("## ")]
    assert ("## Proxies" in headings, "## Forecast signal" in headings) == (selector == "proxy", selector == "signal")


def test_stages_are_repeatable_to_the_byte(workspace: Workspace, setup: Setup) -> None:
    def contents() -> dict[str, bytes]:
        mix_of(setup)
        return {str(file): file.read_bytes() for file in workspace.data.rglob("*") if file.is_file()}

    assert contents() == contents()


def test_commands_run_the_same_stages(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PODIUM_ROOT", str(setup.workspace.root))
    assert podium("data", "raw", setup.recipe.name) == 0
    assert podium("data", "shortlist", setup.recipe.name) == 0
    respond(setup.workspace)
    assert podium("data", "mix", setup.recipe.name) == 0
    assert "training mix: 16 questions" in capsys.readouterr().out
    assert podium("data", "mix", "absent") == 1
    assert "absent.yaml: does not exist" in capsys.readouterr().err


def test_a_missing_stage_names_its_file(workspace: Workspace, setup: Setup) -> None:
    with pytest.raises(DataError, match=r"math500-train\.jsonl"):
        materialize_shortlist(setup)
    with pytest.raises(DataError, match=r"shortlist\.jsonl"):
        materialize_mix(setup)
    materialize_all(setup)
    materialize_shortlist(setup)
    with pytest.raises(DataError, match=r"ann.*Materialize worker_responses"):
        materialize_mix(setup)
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
    assert tally_responses(rows) == {
        "mmlu/p": {"ann": Tally(1.0, 2)},
        "mmlu/r": {"ann": Tally(0.0, 1)},
        "mmlu/s": {"ann": Tally(1.0, 1)},
        "rlpr/p": {"bob": Tally(1.0, 1)},
    }


# ── problems on disk ─────────────────────────────────────────────────────────

characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
words = st.text(alphabet=characters, min_size=1).filter(str.strip)
names = {"benchmark": ("math500", "mmlu"), "domain": ("math", "code"), "split": ("train", "test")}
names["grader"] = ("math", "code")
problems = st.builds(
    Problem,
    **dict.fromkeys(("id", "question", "answer", "family"), words),
    **{field: st.sampled_from(values) for field, values in names.items()},
    choices=st.lists(words).map(tuple),
    tests=st.lists(st.builds(CodeTest, kind=st.just("stdin"), input=words, output=words)).map(tuple),
)


@settings(max_examples=30)
@given(st.lists(problems, max_size=5, unique_by=lambda problem: (problem.benchmark, problem.id)))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, written: list[Problem]) -> None:
    folder = tmp_path_factory.mktemp("store")
    write_problems(folder / "one.jsonl", written)
    write_problems(folder / "two.jsonl", list(written))
    assert (folder / "one.jsonl").read_bytes() == (folder / "two.jsonl").read_bytes()
    if written:
        assert read_problems(folder / "one.jsonl") == written


def test_a_failure_while_writing_leaves_the_old_file(workspace: Workspace) -> None:
    file = workspace.root / "deep" / "rows.jsonl"
    write_problems(file, [make("old")])

    def failing() -> Iterator[Problem]:
        yield make("new")
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError):
        write_problems(file, failing())
    with pytest.raises(UnicodeEncodeError):
        write_problems(file, [make("new", "\ud800")])
    assert [problem.id for problem in read_problems(file)] == ["old"]
    assert [path.name for path in file.parent.iterdir()] == ["rows.jsonl"]


def test_same_id_in_two_benchmarks_is_fine_and_in_one_is_not(workspace: Workspace) -> None:
    file = workspace.root / "rows.jsonl"
    write_problems(file, [make("1"), make("1", benchmark="mmlu")])
    assert len(read_problems(file)) == 2
    write_problems(file, [make("1"), make("1")])
    with pytest.raises(DataError, match="already the id of line 1"):
        read_problems(file)


@pytest.mark.parametrize("row", ['{"id": "1", "benchmark": "b"}', '{"id": "1", "benchmark": "b", "more": 1}'])
def test_rows_of_another_version_say_to_materialize_again(workspace: Workspace, row: str) -> None:
    file = workspace.root / "rows.jsonl"
    file.write_text(row, encoding="utf-8")
    with pytest.raises(DataError, match="materialize it again"):
        read_problems(file)
