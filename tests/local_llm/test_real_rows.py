"""What `make real-rows` does, on a few questions of our own: a real language model, asked, graded and told of.

`make test-local-llm` prepares what this needs.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from ops.config import Setup, Worker, load_pool, load_recipe
from ops.core.workspace import Workspace
from ops.local_models.vllm_server import serve_pool
from ops.precaching.client_setup import open_client
from tests.bench.real_rows import POOL, WORKER, Answers, Rows, ask, questions, table
from tests.local_llm import test_writers
from tests.local_llm.test_writers import PYTHON, ROOT
from tests.team.servers import free_port

pytestmark = test_writers.pytestmark
SAMPLES, TOKENS = 3, 64
CAPITALS = {"France": "Paris", "Japan": "Tokyo", "Italy": "Rome", "Egypt": "Cairo", "Spain": "Madrid", "Peru": "Lima"}
CHOSEN = [
    {
        "id": f"capital-of-{country}",
        "question": f"What is the capital of {country}?",
        "choices": sorted(CAPITALS.values()),
        "answer": "ABCDEF"[sorted(CAPITALS.values()).index(city)],
    }
    for country, city in CAPITALS.items()
]
WRITTEN = [
    {"id": f"sum-{n}", "question": f"What is {n} + {n}?", "choices": None, "answer": str(2 * n)} for n in range(1, 7)
]
FEW = {"chosen": (Rows("mmlu", "chosen"), CHOSEN), "written": (Rows("rlpr", "written"), WRITTEN)}


class Rounds(NamedTuple):
    """Every set, asked twice."""

    worker: Worker
    first: dict[str, Answers]
    again: dict[str, Answers]


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory, make: Callable[[Path], Workspace]) -> Rounds:
    folder, workspace = tmp_path_factory.mktemp("rows"), make(tmp_path_factory.mktemp("real") / "project")
    for rows, lines in FEW.values():
        with gzip.open(folder / f"{rows.file}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
    setup = _setup(workspace)
    [worker], client = setup.pool.workers, open_client(setup, "evaluation")

    def answers() -> dict[str, Answers]:
        return {name: ask(questions(folder, rows), worker, client, SAMPLES) for name, (rows, _) in FEW.items()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PODIUM_VLLM_PYTHON", str(PYTHON))
        with serve_pool(setup.pool, workspace):
            first = answers()
        return Rounds(worker, first, answers())  # the worker is stopped by now


def _setup(workspace: Workspace) -> Setup:
    """The shipped recipe, and of its pool the model alone: at a free port, with the files that `make` prepared."""
    pool = load_pool(workspace.config, POOL)
    worker = pool.worker(WORKER)
    assert worker.serve is not None
    serve = worker.serve.model_copy(update={"model_path": str(ROOT / worker.serve.model_path)})
    address = f"http://127.0.0.1:{free_port()}/v1"
    alone = worker.model_copy(update={"serve": serve, "api_base": address, "max_tokens": TOKENS})
    return Setup(workspace, load_recipe(workspace.config, POOL), pool.model_copy(update={"workers": (alone,)}))


def test_every_sample_of_every_question_is_answered_and_graded(rounds: Rounds) -> None:
    for name, (_, lines) in FEW.items():
        rows = rounds.first[name].rows
        assert len(rows) == SAMPLES * len(lines)
        assert {row.status for row in rows} == {"ok"}
        assert all(row.score in (0.0, 1.0) and row.response.completion_tokens <= TOKENS for row in rows)
    texts = {row.response.text for answers in rounds.first.values() for row in answers.rows}
    assert len(texts) > SAMPLES * 2, "a model that is sampled says different things"


def test_the_second_time_the_cache_answers(rounds: Rounds) -> None:
    for name, answers in rounds.again.items():
        assert answers.speed is None
        assert rounds.first[name].speed is not None
        assert [(row.response.text, row.score) for row in answers.rows] == [
            (row.response.text, row.score) for row in rounds.first[name].rows
        ]


def test_the_table_has_a_row_for_each_set(rounds: Rounds, capsys: pytest.CaptureFixture[str]) -> None:
    text = table(rounds.first, rounds.worker)
    with capsys.disabled():
        print(f"\n{text}")
    assert [line.split(" | ")[0] for line in text.splitlines()[2:]] == ["| chosen", "| written"]
    assert all(f"| 6 | {6 * SAMPLES} | " in line for line in text.splitlines()[2:])
