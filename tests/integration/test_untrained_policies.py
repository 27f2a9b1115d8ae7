"""A prompted Conductor and a static one, through the whole pipeline and into service.

The worker that writes is a real client's call to an OpenAI-compatible endpoint on loopback. One pipeline run serves all
tests; other policies' runs are soak tests.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import openai
import pytest
import yaml

from ops.benchmarks.problem_files import read_problems
from ops.conductor.policy import PolicyCard
from ops.conductor.untrained import WRITE_SUBTASK
from ops.config import PoolChange, Serving, Setup, Snapshot
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.planning.estimate import Cost
from ops.planning.machine import detect_machine
from ops.planning.recipe_plan import make_plan
from ops.planning.requirements import find_missing
from ops.release import mlflow_store, registry
from ops.release.champion import open_registered_versions
from ops.release.tracing import build_answer_tree
from ops.results.outcome_rows import CallUsage, OutcomeRow
from ops.results.table import load_rows
from ops.retraining.fine_tuning_start import get_champion_folder
from ops.retraining.standing import UNTRAINED_REASON, plan_required_work
from ops.serving.answer import Answer
from ops.serving.in_thread import EngineThread
from ops.serving.request_options import RequestOptions, make_problem
from ops.training.cold_start.base_policy import base_policy_folder
from ops.training.cold_start.validation import ColdStartRecord
from tests.command import PODIUM
from tests.integration.checkouts import LENIENT, SHORT, command, configure, sizes
from tests.providers import Provider, Refusal
from tests.serving.running import Running

pytestmark = [
    pytest.mark.long,  # `make test` takes a prompted Conductor from a key to an answer (test_first_look.py)
    pytest.mark.timeout(600),
]

TOOLS = ("algebraist", "programmer")
WORKFLOW = 'First think.\nmodel_id = [1]\nsubtasks = ["Solve the problem."]\naccess_list = [[]]'
UNREADABLE = "One should ask a mathematician."
WRITTEN_TOKENS, PROMPT_TOKENS = 40, 500
PRICE = {"input": 10.0, "output": 30.0}
WRITING_USD = (PROMPT_TOKENS * PRICE["input"] + WRITTEN_TOKENS * PRICE["output"]) / 1e6
RECIPE = {name: SHORT[name] for name in ("seed", "grading", "curation")} | {
    "name": "untrained", "pool": "mixed", "benchmarks": sizes(40, 8, ["math500"]) | sizes(40, 4, ["livecodebench"]),
    "prompting": {"style": "full", "shuffle_ordinals": False},
    "policy": {"kind": "prompted", "worker": "writer"},
}  # fmt: skip
STATIC = {
    "kind": "static",
    "workflow": [{"worker": "algebraist"}, {"worker": "programmer", "subtask": "Check the answer.", "access": "all"}],
}
TRAINED = RECIPE | {
    "name": "trained", "prompting": SHORT["prompting"] | {"max_steps": 2}, "policy": SHORT["policy"] | {"hidden": 64},
    "cold_start": SHORT["cold_start"] | {"teacher": {"policy": {"kind": "prompted", "worker": "writer"}}},
    "grpo": SHORT["grpo"] | {"rollouts_per_question": 4, "micro_batch": 8},
    "guards": {"max_invalid_first_step": 1},  # so short a cold start does not satisfy the guard
}  # fmt: skip
"""The recipe of a trained Conductor over the same pool. The prompted one is its teacher."""


class Endpoint(Provider):
    """A provider that writes workflows, of which about a quarter are unreadable, and says how long its texts are."""

    def __init__(self) -> None:
        super().__init__("openai", [])
        self.written: list[str] = []
        self.broken = False

    def answer(self, path: str, headers: Mapping[str, str], body: dict[str, Any]) -> Refusal:
        if self.broken:
            return Refusal(400, {"error": {"message": "unsupported region", "type": "invalid_request_error"}})
        asked = "".join(each["content"] for each in body["messages"])
        text = "Answer: 1"
        if WRITE_SUBTASK in asked:
            self.written.append(asked)
            text = UNREADABLE if hashlib.sha256(asked.encode()).digest()[0] % 4 == 0 else WORKFLOW
        usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": WRITTEN_TOKENS}
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return Refusal(200, {
            "id": "1", "object": "chat.completion", "created": 1, "model": body["model"], "choices": [choice],
            "usage": usage | {"total_tokens": PROMPT_TOKENS + WRITTEN_TOKENS},
        })  # fmt: skip


class Finished(NamedTuple):
    """A finished pipeline run, what it printed, and what was planned before it."""

    workspace: Workspace
    endpoint: Endpoint
    printed: str
    planned: list[Cost]
    not_ready: list[str]
    plan_text: str


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, make: Callable[[Path], Workspace]) -> Iterator[Finished]:
    workspace = make(tmp_path_factory.mktemp("untrained") / "project")
    with Endpoint() as endpoint:
        write_settings(workspace, endpoint)
        plan = make_plan(Setup.read(workspace, "untrained"), detect_machine(workspace))
        _, text = command(workspace.root, "plan", "untrained")
        lacks = [each.what for each in find_missing(plan)]
        status, printed = command(workspace.root, "run", "untrained", "--yes")
        assert status == 0, printed
        yield Finished(workspace, endpoint, printed, plan.stages, lacks, text)


def write_settings(workspace: Workspace, endpoint: Endpoint) -> None:
    every = yaml.safe_load((workspace.config / "pools" / "quickstart.yaml").read_text(encoding="utf-8"))["workers"]
    writer = {
        "name": "writer", "model": "hosted_vllm/writer", "api_base": endpoint.environment["OPENAI_BASE_URL"],
        "price": PRICE, "max_tokens": 400, "retries": 0,
    }  # fmt: skip
    pool = {"name": "mixed", "workers": [writer, *(worker for worker in every if worker["name"] in TOOLS)]}
    configure(workspace, {
        "pools/mixed": pool, "promotion": LENIENT, "recipes/untrained": RECIPE, "recipes/trained": TRAINED,
        "recipes/fixed": RECIPE | {"name": "fixed", "policy": STATIC},
    })  # fmt: skip


def scores(workspace: Workspace) -> list[OutcomeRow]:
    files = sorted(workspace.scores.glob("conductor/untrained-*/*.parquet"))
    return [row for file in files for row in load_rows(file)]


def ask(done: Finished, text: str, **options: Any) -> Answer:
    with open_registered_versions(done.workspace) as source:
        engine = EngineThread.from_files(source.fetch_files(source.find_current() or ""), done.workspace, Serving())
        with closing(engine):
            chosen = RequestOptions(**options)
            return engine.answer_question(make_problem(text, chosen), chosen)


def test_the_plan_counts_the_writing_calls_and_no_training(done: Finished) -> None:
    assert [stage.name for stage in done.planned] == ["precaching", "every worker alone", "evaluation"]
    evaluation = done.planned[-1]
    assert "writer writes each workflow" in evaluation.calls_formula
    assert evaluation.calls.low == 2 * 12, "a call that writes and one step for each question"
    assert done.not_ready == []
    assert "writer, prompted to write the workflows; nothing is trained" in done.plan_text
    assert "GRPO" not in done.plan_text


def test_the_run_ends_with_a_champion_and_trains_nothing(done: Finished) -> None:
    assert "models:/conductor@champion is version 1" in done.printed
    assert "mean reward" not in done.printed and "Traceback" not in done.printed
    assert not done.workspace.runs.is_dir() or not list(done.workspace.runs.iterdir())


def test_writing_is_part_of_each_answers_cost(done: Finished) -> None:
    rows = scores(done.workspace)
    assert len(rows) == 12
    for row in rows:
        assert row.usage[-1] == CallUsage("writer", Usage(PROMPT_TOKENS, WRITTEN_TOKENS))
        assert row.cost_usd >= WRITING_USD
        assert "writer" not in row.workers, "writing is no step"


def test_an_unreadable_text_is_a_format_failure_with_its_cost(done: Finished) -> None:
    failed = [row for row in scores(done.workspace) if not row.format_ok]
    assert failed
    for row in failed:
        assert (row.correct, row.unscorable, row.outcome) == (0, False, "invalid")
        assert row.cost_usd == pytest.approx(WRITING_USD)
        assert row.completion == UNREADABLE


def test_registering_asks_no_worker_and_says_what_the_policy_is(done: Finished) -> None:
    assert len([text for text in done.endpoint.written if "What is 6 * 7?" in text]) == 0
    version = registry.find_champion(done.workspace)
    assert version is not None
    assert version.tags["recipe"] == "untrained" and float(version.tags["rollouts_usd"]) == 0
    assert version.tags["policy"].startswith("untrained-")
    with mlflow_store.connect(done.workspace) as client:
        described = client.get_model_version(mlflow_store.MODEL_NAME, version.version).description
    assert "worker writer is prompted to write the workflows" in described
    assert "It was not trained." in described


def test_an_answers_cost_and_trace_have_the_writing(done: Finished) -> None:
    answer = ask(done, "What is 6 * 9?")
    assert answer.status == "answered", answer.error
    told = answer.as_account(texts=False)
    assert told["calls"] == len(answer.steps) + len(answer.completions)
    assert answer.paid_usd == pytest.approx(answer.cost_usd)
    assert answer.cost_usd >= WRITING_USD * len(answer.completions)
    assert answer.completion_tokens >= WRITTEN_TOKENS
    spans = [span for span in build_answer_tree(answer, time.time()).children if span.name.startswith("Conductor")]
    assert len(spans) == len(answer.completions)
    assert {span.attributes["mlflow.llm.cost"]["total_cost"] for span in spans} == {WRITING_USD}


def test_it_is_served_over_openais_client(done: Finished, tmp_path: Path) -> None:
    pool = Setup.read(done.workspace, "untrained").pool
    with Running(tmp_path, pool, (*PODIUM, "serve", "--port", "0"), PODIUM_ROOT=str(done.workspace.root)) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=200)
        [model] = client.models.list().data
        written = len(done.endpoint.written)
        messages: Any = [{"role": "user", "content": "What is 6 * 17?"}]
        reply = client.chat.completions.create(model=model.id, messages=messages)
        assert server.end() == 0
    assert reply.choices[0].message.content
    assert (reply.model_extra or {})["podium"]["cost_usd"] >= WRITING_USD
    assert len(done.endpoint.written) > written, "a worker wrote the workflow"


def test_writing_stays_within_the_requests_budget(done: Finished) -> None:
    before = len(done.endpoint.written)
    answer = ask(done, "What is 6 * 11?", budget_usd=0.002, execute=False)
    assert answer.status == "over_budget"
    assert "0.002 USD" in answer.error
    assert (answer.paid_usd, len(done.endpoint.written)) == (0, before)


def test_a_writer_that_refuses_leaves_the_best_worker_to_answer(
    done: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(done.endpoint, "broken", True)
    answer = ask(done, "What is 6 * 13?", forbidden=("writer",))
    assert answer.status == "answered", answer.error
    assert [(each.reason, each.then) for each in answer.fallbacks] == [("writer_failed", "best_worker")]
    assert "writer, which writes the workflows" in answer.fallbacks[0].error


def test_after_a_change_of_the_pool_the_champion_is_scored_as_it_is_and_not_fine_tuned(done: Finished) -> None:
    champion = registry.find_champion(done.workspace)
    assert champion is not None
    snapshot = Snapshot.capture(done.workspace.config, "untrained", None, "commit")
    changed = snapshot.pool.model_copy(update={"workers": snapshot.pool.workers[:-1]})
    change = PoolChange(version=champion.version, policy=champion.tags["policy"], before=snapshot.pool)
    card = PolicyCard.read(get_champion_folder(done.workspace, change))
    assert card.untrained == snapshot.recipe.policy
    plan = plan_required_work(snapshot.model_copy(update={"pool": changed, "change": change}))
    assert (plan.evaluate, plan.fine_tune) == (True, "never")
    assert UNTRAINED_REASON in str(plan)


@pytest.mark.soak
def test_a_static_workflow_is_scored_against_it(done: Finished) -> None:
    written = len(done.endpoint.written)
    plan = make_plan(Setup.read(done.workspace, "fixed"), detect_machine(done.workspace))
    assert plan.stages[-1].calls.expected == 2 * 12
    status, printed = command(done.workspace.root, "run", "fixed", "--yes")
    assert status == (0 if registry.find_champion(done.workspace).version == "2" else 3), printed  # type: ignore[union-attr]
    challenger = registry.find_challenger(done.workspace)
    assert challenger is not None and challenger.version == "2"
    assert challenger.tags["verdict"]
    assert len(done.endpoint.written) == written, "nothing is written"


@pytest.mark.soak
def test_a_conductor_taught_by_the_prompted_champion_is_judged_against_it(
    done: Finished, record_property: Callable[[str, object], None]
) -> None:
    written, champion = len(done.endpoint.written), registry.find_champion(done.workspace)
    assert champion is not None
    status, printed = command(done.workspace.root, "run", "trained", "--yes")
    assert status in (0, 3), printed
    mix = read_problems(done.workspace.data / "training_mix.jsonl")
    assert len(done.endpoint.written) - written == len(mix), "the champion writes no evaluation again"
    record = ColdStartRecord.read(base_policy_folder(Setup.read(done.workspace, "trained")))
    assert record is not None and record.teacher_workflows == len(mix) > record.teacher_right > 0
    assert record.teacher_usd >= len(mix) * WRITING_USD
    challenger = registry.find_challenger(done.workspace)
    assert challenger is not None and challenger.version != champion.version
    decision = registry.load_decision(done.workspace, challenger.version)
    assert decision.against == champion.version
    judged = {check.name for check in decision.checks}
    assert any("champion" in name for name in judged), judged
    assert decision.promote == (status == 0)
    status, printed = command(done.workspace.root, "verdict", challenger.version)
    record_property("verdict", printed)
    assert status == (0 if decision.promote else 3) and all(name in printed for name in judged)


@pytest.mark.soak
def test_a_second_run_asks_nothing(done: Finished) -> None:
    written = len(done.endpoint.written)
    status, printed = command(done.workspace.root, "run", "untrained", "--yes")
    assert status == 0, printed
    assert "no call made" in printed
    assert len(done.endpoint.written) == written
