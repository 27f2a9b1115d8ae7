"""GPQA from end to end: a canary in its questions and answers is never shown, logged or published."""

from __future__ import annotations

import asyncio
import csv
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest

from assets.resources import RunResource
from ops.benchmarks.problem_files import read_problems, write_problems
from ops.benchmarks.quarantine import quarantine_file
from ops.benchmarks.registry import BENCHMARKS, displayable_question, is_confidential
from ops.config import BenchmarkSource, Evaluation, Prompting, Worker
from ops.core.errors import DataError
from ops.core.messages import Message
from ops.core.problem import Problem
from ops.core.response import Response
from ops.core.response_rows import load_responses
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.evaluation.runner import evaluate
from ops.precaching.precache import precache_worker, write_responses
from ops.results.leaderboard import Leaderboard, build_tables
from ops.results.outcome_rows import OutcomeRow
from ops.results.summary import summarize
from ops.results.table import load_rows, response_rows_as_scores, save_rows
from ops.stages.curation import materialize_mix, materialize_shortlist
from ops.stages.raw_problems import materialize_raw
from ops.workflow.grammar import Step, Workflow
from ops.workflow.team import Team
from tests.integration.checkouts import UNTRAINED, configure, load_raw, materialize, sizes
from tests.loading import sound_problems

CANARY = "canary-7f3a"
COLUMNS = (
    "Record ID", "Question", "Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3",
    "Subdomain",
)  # fmt: skip


def record(name: str, text: str = CANARY, **changed: str) -> dict[str, str]:
    """A question of GPQA of which every part begins with `text`."""
    values = {column: f"{text} {column} of {name}?" for column in COLUMNS}
    return values | {"Record ID": name, "Subdomain": "Physics"} | changed


def write_gpqa(folder: Path, records: Iterable[dict[str, str]]) -> str:
    with (folder / "gpqa.csv").open("w", encoding="utf-8", newline="") as out:
        table = csv.DictWriter(out, COLUMNS)
        table.writeheader()
        table.writerows(records)
    return "gpqa.csv"


@pytest.fixture
def podium(project: Workspace) -> RunResource:
    """A project whose GPQA is a file of five valid questions and one without its second wrong answer."""
    records = [*(record(f"rec{i}") for i in range(5)), record("recBroken", **{"Incorrect Answer 2": ""})]
    gpqa = {"source": "file", "test_file": write_gpqa(project.root, records), "max_malformed_share": 0.2}
    recipe = UNTRAINED | {
        "name": "secret",
        "benchmarks": {**sizes(8, 2), "gpqa_diamond": gpqa},
        "curation": {"per_domain": 2, "selector": "uniform", "near_duplicate_jaccard": 0.8},
    }
    configure(project, {"recipes/secret": recipe})
    return RunResource(root=str(project.root), recipe="secret")


class Echo:
    """A worker and a Conductor that repeat their prompts, as the worst case of a model."""

    async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0, **_: object) -> Response:
        return Response(f"{messages[0]['content']}\nAnswer: B", Usage(10, 5), 0.001, 0.5, "stop")

    def write(self, prompts: Sequence[Sequence[Message]], **_: Any) -> list[str]:
        quoted = [str(messages[-1]["content"])[:400] for messages in prompts]
        return [Workflow((Step(0, f"Solve {text!r}."), Step(0, "Check it.", "all"))).render() for text in quoted]


WORKER = Worker(name="echo", model="local/echo")


def echoed(problems: Sequence[Problem]) -> list[OutcomeRow]:
    team = Team([WORKER], Echo(), Prompting(style="compact"))
    return list(asyncio.run(evaluate(Echo(), problems, team, Evaluation())))


def questions(podium: RunResource) -> list[Problem]:
    return materialize_raw(podium.load_setup(), "gpqa_diamond").test


def test_the_canary_is_where_the_work_is_done(podium: RunResource) -> None:
    """Without this, the tests below could not fail."""
    problems = questions(podium)
    assert len(problems) == 5
    assert all(CANARY in problem.question and CANARY in "".join(problem.choices) for problem in problems)
    rows = echoed(problems)
    assert all(CANARY in row.completion and CANARY in row.answer for row in rows)


def test_the_ui_and_the_run_log_show_ids_only(
    podium: RunResource,
    instance: dg.DagsterInstance,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    result = materialize(podium, instance, "raw_problems", partition="gpqa_diamond")
    (made,) = result.asset_materializations_for_node("raw_problems")
    assert made.metadata["test"].value == 5
    assert made.metadata["quarantined"].value == 1
    assert "gpqa_diamond/rec0 (not shown: " in str(made.metadata["examples"].value)
    events = "\n".join(str(entry) for entry in instance.all_logs(result.run_id))
    printed = capfd.readouterr()
    assert "rec0" in events
    for text in (events, printed.out, printed.err, caplog.text):
        assert CANARY not in text


def test_a_malformed_question_is_quarantined_by_its_id_alone(podium: RunResource) -> None:
    workspace = podium.load_setup().workspace
    questions(podium)
    listed = quarantine_file(workspace, "gpqa_diamond", "test").read_text(encoding="utf-8")
    assert '"id": "recBroken"' in listed
    assert "'Incorrect Answer 2'" not in listed
    assert "Incorrect Answer 2" in listed
    assert CANARY not in listed


@pytest.mark.parametrize("broken", [
    pytest.param({"Incorrect Answer 1": ""}, id="no answer"),
    pytest.param({"Record ID": ""}, id="no id"),
    pytest.param({"Question": ""}, id="no question"),
    pytest.param({"Question": f"{CANARY}\0"}, id="a NUL"),
    pytest.param({"Correct Answer": CANARY * 20_000}, id="too long"),
])  # fmt: skip
def test_no_error_quotes_a_question(tmp_path: Path, broken: dict[str, str]) -> None:
    workspace = Workspace(tmp_path)
    name = write_gpqa(tmp_path, [record("rec0", **broken)])
    with pytest.raises(DataError) as caught:
        sound_problems(BENCHMARKS["gpqa_diamond"], "test", BenchmarkSource(source="file", test_file=name), workspace, 0)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("column", ["answer", "grader", "domain", "choices", "level"])
def test_no_error_quotes_a_value_in_the_wrong_column(tmp_path: Path, column: str) -> None:
    row = {"id": "rec0", "question": CANARY, "choices": [CANARY, "b"], "answer": "A"} | {column: f"{CANARY} misplaced"}
    row |= {"level": [CANARY]} if column == "level" else {}
    pd.DataFrame([row]).to_parquet(tmp_path / "gpqa.parquet")
    source = BenchmarkSource(source="file", test_file="gpqa.parquet")
    with pytest.raises(DataError) as caught:
        sound_problems(BENCHMARKS["gpqa_diamond"], "test", source, Workspace(tmp_path), 0)
    assert CANARY not in str(caught.value)


def test_rows_on_disk_keep_what_statistics_need_and_no_text(podium: RunResource) -> None:
    workspace = podium.load_setup().workspace
    problems = questions(podium)
    rows = echoed(problems)
    file = workspace.scores / "conductor" / "any" / "gpqa_diamond.parquet"
    save_rows(rows, file)
    stored = load_rows(file)
    assert [(row.problem_key, row.correct, row.steps, row.workers, row.tokens) for row in stored] == [
        (row.problem_key, row.correct, row.steps, row.workers, row.tokens) for row in rows
    ]
    assert {(row.completion, row.answer) for row in stored} == {("", "")}
    alone = asyncio.run(precache_worker(problems, WORKER, Echo()))
    assert all(CANARY in row.response.text for row in alone)
    responses = workspace.state / "responses" / "gpqa_diamond.parquet"
    write_responses(alone, responses)
    kept = load_responses(responses)
    assert [(row.problem_id, row.score, row.response.text) for row in kept] == [
        (row.problem_id, row.score, "Answer: B") for row in alone
    ]
    for table in (file, responses):
        assert CANARY not in pd.read_parquet(table).to_csv()
    board = Leaderboard({"Conductor": summarize(rows), "echo": summarize(response_rows_as_scores(alone))})
    assert CANARY not in str(build_tables(board))


def test_other_benchmarks_keep_their_texts(tmp_path: Path) -> None:
    problem = Problem("1", "mmlu", "mmlu", "test", "Which?", "B", "choice", ("x", "y"))
    rows = echoed([problem])
    save_rows(rows, tmp_path / "rows.parquet")
    assert load_rows(tmp_path / "rows.parquet") == rows
    assert displayable_question(problem) == "Which?"
    assert not is_confidential("mmlu")
    assert not is_confidential("question")


def test_the_data_card_and_the_contamination_report_name_ids(podium: RunResource) -> None:
    setup = podium.load_setup()
    workspace = setup.workspace
    load_raw(setup)
    # The worst case: the training data is a file that repeats a question of GPQA.
    train = workspace.data / "raw" / "mmlu-train.jsonl"
    stolen = read_problems(workspace.data / "raw" / "gpqa_diamond-test.jsonl")[0]
    leaked = Problem("leak", "mmlu", "mmlu", "train", stolen.question, "A", "choice", stolen.choices)
    write_problems(train, [*read_problems(train), leaked])
    materialize_shortlist(setup)
    materialize_mix(setup)
    report = (workspace.data / "contamination.json").read_text(encoding="utf-8")
    assert "gpqa_diamond/rec0" in report
    assert "mmlu/leak" in report
    for name in ("contamination.json", "data_card.md", "shortlist.jsonl", "training_mix.jsonl"):
        assert CANARY not in (workspace.data / name).read_text(encoding="utf-8")
