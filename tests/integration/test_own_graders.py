"""A whole small run on a user's own files: one benchmark graded by a judge on loopback, one by a function.

The first run is killed amid the judge's calls and goes on; the gate waits until the judge was measured.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from ops.config import Setup
from ops.core.response_rows import load_responses
from ops.core.workspace import Workspace
from ops.planning.estimate import Cost
from ops.planning.machine import detect_machine
from ops.planning.recipe_plan import make_plan
from ops.precaching.stored_profiles import evaluation_folder
from ops.release import registry
from ops.results.table import iterate_records, load_rows, response_rows_as_scores
from ops.synthetic.problems import generate_problems
from tests.command import start_run
from tests.integration.checkouts import LENIENT, SHORT, command, configure
from tests.providers import Provider, Refusal

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

WORKERS = ("scholar", "solver")
KILL_AFTER = 6
"""Verdicts of the judge after which the first run is killed."""
FUNCTION = """
def grade(problem, answer):
    said = answer.strip().splitlines()[-1].strip(". ").lower()
    return said == problem["answer"].lower() or said.endswith(" " + problem["answer"].lower())
"""
RECIPE = {name: SHORT[name] for name in ("seed", "grading", "curation")} | {
    "name": "own",
    "pool": "solvers",
    "benchmarks": {
        "math500": {
            "source": "file", "train_file": "rows/math500-train.jsonl", "test_file": "rows/math500-test.jsonl",
            "grader": {
                "kind": "judge", "pool": "judges", "worker": "referee",
                "rubric": "It is right if its last line states the reference answer.",
            },
        },
        "rlpr": {
            "source": "file", "train_file": "rows/rlpr-train.jsonl", "test_file": "rows/rlpr-test.jsonl",
            "grader": {"kind": "function", "file": "graders/last_line.py"},
        },
    },
    "evaluation": {"questions": 8},
    "prompting": {"style": "full", "shuffle_ordinals": False},
    "policy": {"kind": "static", "workflow": [{"worker": "solver"}]},
}  # fmt: skip
JUDGES = {
    "name": "judges",
    "workers": [{
        "name": "referee", "model": "openai/gpt-6-luna", "api_key_env": "OPENAI_API_KEY", "temperature": None,
        "reasoning_effort": "none", "price": {"input": 0.1, "output": 0.5}, "max_tokens": 64, "concurrency": 1,
    }],
}  # fmt: skip


class Referee(Provider):
    """A provider whose model judges: right if the answer's last line has the reference, whatever else it says."""

    def __init__(self) -> None:
        super().__init__("openai", [], latency_s=0.05)
        self.asked: list[str] = []

    def answer(self, path: str, headers: Mapping[str, str], body: dict[str, Any]) -> Refusal:
        self.asked.append(body["messages"][-1]["content"])
        return super().answer(path, headers, body)

    def _text(self, asked: Any) -> str:
        text = str(asked.text)
        code = text.rpartition(' WRONG" if not')[0].rpartition('"')[2]
        gold = text.partition("Reference answer:\n")[2].partition("\n\nThe text between")[0].strip()
        answer = text.partition(f"<<< answer {code}\n")[2].partition(f"\n>>> answer {code}")[0]
        return f"{code} {'RIGHT' if gold and answer.splitlines()[-1].endswith(gold) else 'WRONG'}"


class Finished(NamedTuple):
    """The project after a killed run, one that went on from there, a measurement of the judge, and another run."""

    workspace: Workspace
    referee: Referee
    killed_after: int
    statuses: tuple[int, int, int]
    printed: tuple[str, str, str]
    asked: tuple[int, int, int]
    """The judge's calls after each."""
    verdict: str
    """The verdict on what the first of them made."""
    plan: str
    planned: Sequence[Cost]
    """What `podium plan` printed before the first, and its stages."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, make: Callable[[Path], Workspace]) -> Iterator[Finished]:
    workspace = make(tmp_path_factory.mktemp("own") / "project")
    write_settings(workspace)
    with Referee() as referee, pytest.MonkeyPatch.context() as patch:
        for name, value in referee.environment.items():
            patch.setenv(name, value)
        planned = make_plan(Setup.read(workspace, "own"), detect_machine(workspace)).stages
        text = command(workspace.root, "plan", "own", columns=160)[1]
        killed_after = kill_amid_judging(workspace, referee)
        runs, verdict = [], ""
        for words in (("run", "own", "--yes"), ("data", "gold", "own", "--yes"), ("run", "own", "--yes")):
            status, printed = command(workspace.root, *words, columns=160)
            runs.append((status, printed, len(referee.asked)))
            if status == 3:
                verdict = command(workspace.root, "verdict", "1", columns=160)[1]
        statuses, printed_, asked = zip(*runs, strict=True)
        yield Finished(workspace, referee, killed_after, statuses, printed_, asked, verdict, text, planned)


def write_settings(workspace: Workspace) -> None:
    for name in ("math500", "rlpr"):
        for split in ("train", "test"):
            rows = [
                {"id": each.id, "question": each.question, "answer": each.answer}
                for each in generate_problems(name, split, 40 if split == "train" else 20, seed=3)
            ]
            file = workspace.root / "rows" / f"{name}-{split}.jsonl"
            file.parent.mkdir(exist_ok=True)
            file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    function = workspace.root / "graders" / "last_line.py"
    function.parent.mkdir()
    function.write_text(FUNCTION, encoding="utf-8")
    every = yaml.safe_load((workspace.config / "pools" / "quickstart.yaml").read_text(encoding="utf-8"))["workers"]
    solvers = {"name": "solvers", "workers": [worker for worker in every if worker["name"] in WORKERS]}
    configure(workspace, {"pools/solvers": solvers, "pools/judges": JUDGES})
    configure(workspace, {"recipes/own": RECIPE, "promotion": LENIENT})


def kill_amid_judging(workspace: Workspace, referee: Referee) -> int:
    """Start a run and kill its processes after a few of the judge's calls; return how many had begun."""
    run = start_run(workspace.root, "own", "--yes")
    deadline = time.monotonic() + 300
    while len(referee.asked) < KILL_AFTER:
        assert run.poll() is None and time.monotonic() < deadline, run.communicate(timeout=60)[0]
        time.sleep(0.01)
    os.killpg(run.pid, signal.SIGKILL)
    run.communicate(timeout=60)
    return len(referee.asked)


def test_a_killed_run_goes_on_and_no_verdict_is_paid_for_twice(finished: Finished) -> None:
    assert finished.killed_after < finished.asked[0], finished.printed[0]
    counts = Counter(finished.referee.asked)
    assert sum(count - 1 for count in counts.values()) <= 1, "only the call in flight may be made again"
    assert not finished.referee.bill.refused


def test_the_gate_keeps_back_until_the_judge_was_measured(finished: Finished) -> None:
    assert finished.statuses == (3, 0, 0), finished.printed
    assert "agreement of the judge of math500" in finished.printed[0]
    assert "not measured for this judge and rubric: `podium data gold own` measures it" in finished.verdict
    assert "referee on math500, gold answers: accepts 60 of 60" in finished.printed[1]
    assert "rejects 60 of 60" in finished.printed[1]
    assert finished.asked[2] == finished.asked[1], "the second run asks nothing"
    champion = registry.find_champion(finished.workspace)
    assert champion is not None
    checks = {each.name: each for each in registry.load_decision(finished.workspace, champion.version).checks}
    check = checks["agreement of the judge of math500"]
    assert check.passed and 0.9 < check.value < 1, "Wilson's lower end of 60 of 60"


def test_rows_have_the_verdicts_and_what_the_judge_cost(finished: Finished) -> None:
    rows = [row for file in finished.workspace.scores.glob("conductor/own-*/*.parquet") for row in load_rows(file)]
    assert Counter(row.benchmark for row in rows) == {"math500": 8, "rlpr": 8}
    alone = list(iterate_records(response_rows_as_scores(load_responses(evaluation_folder(finished.workspace)))))
    assert {row.benchmark for row in alone} == {"math500", "rlpr"}
    for row in [*rows, *alone]:
        assert (row.grading_usd > 0) == (row.benchmark == "math500")
    assert {row.correct for row in rows} == {0, 1}
    problems = {each.id: each for name in ("math500", "rlpr") for each in generate_problems(name, "test", 20, seed=3)}
    for row in rows:
        last = row.answer.strip().splitlines()[-1]
        assert row.correct == last.endswith(problems[row.problem_id].answer), (row.answer, row.benchmark)


def test_the_plan_counts_the_judges_calls(finished: Finished) -> None:
    assert "referee grades each answer to math500" in finished.plan
    candidates = [stage.workers["referee"].calls.expected for stage in finished.planned]
    assert candidates[0] == 15 / 2 * len(WORKERS), "half of the 15 candidates, by each worker"
    assert all(candidates) and all(stage.workers["referee"].usd.expected > 0 for stage in finished.planned)
