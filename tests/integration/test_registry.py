"""The registry on a real MLflow store in SQLite: register, gate, promote, serve elsewhere, roll back."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

from ops.conductor.policy import PolicyCard
from ops.config import ColdStart, Pool, PromotionGate, Prompting, ScratchPolicy, Setup, load_pool, load_recipe
from ops.core.digests import write_digest
from ops.core.errors import DataError, PodiumError
from ops.core.workspace import Workspace
from ops.evaluation.comparison import Comparison
from ops.release import aliases, mlflow_store, registry
from ops.release.champion import open_registered_versions
from ops.release.judgement import apply_gate
from ops.release.lineage import Lineage
from ops.release.promotion import override_decision
from ops.release.requirements import check_requirements_installed
from ops.results.leaderboard import Leaderboard
from ops.results.outcome_rows import OutcomeRow
from ops.results.table import iterate_records
from ops.stages.restoring import restore_run
from ops.training.run.training_run import RunResult
from ops.workflow.grammar import Step, Workflow
from tests.command import PODIUM, podium
from tests.releases import NO, YES, checkout, model_folder, scored, shared_store, version
from tests.serving.running import Running

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = Workflow((Step(0, "Compute."), Step(0, "Check it.", "all"))).render()
QUESTION = r"What is $6 \cdot 7$?"
SCRATCH = ScratchPolicy(vocabulary=320, hidden=32, layers=1, heads=2, max_tokens=256)


@pytest.fixture(scope="module")
def pool() -> Pool:
    whole = load_pool(ROOT / "config", "quickstart")
    return whole.model_copy(update={"workers": (whole.worker("algebraist"), whole.worker("guesser"))})


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory, pool: Pool) -> Path:
    """A tiny policy that has memorized one workflow."""
    from ops.training.cold_start.supervised import SftExample, build_scratch_model, fine_tune

    folder = tmp_path_factory.mktemp("policy")
    texts = [f"{QUESTION}\nModels: 0 1", "Compute 2 + 3.\nModels: 0 1", "Who wrote this?\nModels: 0 1"]
    answer = [{"role": "assistant", "content": WORKFLOW}]
    examples = [SftExample(prompt=[{"role": "user", "content": text}], completion=answer) for text in texts]
    model, tokenizer = build_scratch_model(SCRATCH, examples, seed=0)
    fine_tune(model, tokenizer, examples * 100, ColdStart(steps=100, batch=3, learning_rate=1e-2), 0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "training_args.bin").write_bytes(b"a pickle, which Trainer writes and a version does not hold")
    card = {"prompting": Prompting(style="compact", few_shots="none"), "max_completion_tokens": 64}
    PolicyCard(recipe="test", pool=pool, offered=pool.names, **card).write(folder)
    return folder


@pytest.fixture
def bare(tmp_path: Path) -> Workspace:
    """A checkout without a store."""
    (tmp_path / "config").mkdir()
    (tmp_path / "dvc.yaml").touch()
    return Workspace(tmp_path)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return with_agent(tmp_path / "checkout")


def with_agent(folder: Path) -> Workspace:
    """A checkout with an empty store and the agent that registration reads; all else comes with the package."""
    shutil.copytree(ROOT / "mlflow", folder / "mlflow")
    return checkout(folder, shared_store())


def rows(right: int) -> list[OutcomeRow]:
    """Scores with texts, which a store does not keep."""
    return [replace(row, completion="what was written", answer="what was answered") for row in scored(right)]


def register(
    workspace: Workspace, policy: Path, pool: Pool, right: int, training_runs: dict[str, str] | None = None,
    checkpoint: str | None = None,
) -> mlflow_store.RegisteredVersion:  # fmt: skip
    keys = (pool.answers_key, pool.prices_key)
    lineage = Lineage("c0ffee", "d41d8c", "test-1", *keys, "test", rollouts_usd=1.25, questions="mmlu=m1")
    return registry.register_version(
        workspace, policy, pool, rows(right), lineage, tags={"seed": "1"},
        recipe=load_recipe(ROOT / "config", "quickstart"), training_runs=training_runs, checkpoint=checkpoint,
    )  # fmt: skip


def compared(right: int) -> Comparison:
    """A comparison with `right` of ten correct, against a worker with two."""
    return Comparison("test-1", Leaderboard({}), rows(right), "algebraist", rows(2))


def crowned(workspace: Workspace) -> mlflow_store.RegisteredVersion:
    """Return the champion, which is there."""
    champion = registry.find_champion(workspace)
    assert champion is not None
    return champion


def test_an_empty_store_has_no_champion_and_is_not_created(bare: Workspace) -> None:
    assert registry.find_champion(bare) is None
    assert registry.find_challenger(bare) is None
    assert not bare.state.exists()
    with pytest.raises(mlflow_store.RegistryError, match="podium run"), open_registered_versions(bare):
        raise AssertionError("there is none")
    assert not bare.state.exists()


def test_two_versions_from_registration_to_promotion(workspace: Workspace, policy: Path, pool: Pool) -> None:
    first = register(workspace, policy, pool, right=6)
    assert first.aliases == ("challenger",)
    assert registry.find_champion(workspace) is None
    assert first.tags.items() >= {
        "git_commit": "c0ffee", "dvc_revision": "d41d8c", "policy": "test-1", "pool_answers_key": pool.answers_key,
        "pool_prices_key": pool.prices_key, "recipe": "test", "rollouts_usd": "1.25",
    }.items()  # fmt: skip
    assert first.metrics["mmlu/accuracy"] == first.metrics["unseen/accuracy"] == 0.6
    assert first.metrics["mmlu/standard_error"] == pytest.approx(0.1633, abs=1e-4)
    ends = [first.metrics[f"mmlu/accuracy_{end}"] for end in ("low", "high")]
    assert ends == pytest.approx([0.3127, 0.8318], abs=1e-4), "Wilson's interval of 6 of 10"

    assert register(workspace, policy, pool, right=6).version == first.version, "registered twice"

    assert aliases.promote_version(workspace, first.version, YES)
    assert crowned(workspace).version == first.version
    stored = list(iterate_records(registry.load_scores(workspace, crowned(workspace))))
    assert {(row.benchmark, row.problem_id, row.correct) for row in stored} == {
        (row.benchmark, row.problem_id, row.correct) for row in rows(6)
    }
    assert {row.completion + row.answer for row in stored} == {""}

    second = register(workspace, policy, pool, right=8)
    assert second.version != first.version
    assert not aliases.promote_version(workspace, second.version, NO)
    [verdict] = (workspace.mlflow_artifacts / second.run_id).rglob("verdict.json")
    assert json.loads(verdict.read_text(encoding="utf-8"))["checks"][0]["name"] == "cost"
    assert crowned(workspace).version == first.version
    challenger = registry.find_challenger(workspace)
    assert challenger is not None and challenger.version == second.version

    assert aliases.promote_version(workspace, second.version, override_decision(NO, "Ada", "needed today"))
    made = crowned(workspace)
    assert (made.version, made.tags["override"]) == (second.version, "Ada: needed today")
    assert aliases.promote_version(workspace, second.version, YES), "it is the champion already"
    assert made.tags["replaced"] == crowned(workspace).tags["replaced"] == first.version, "it does not replace itself"


def test_a_first_champion_that_is_promoted_again_replaced_nothing(workspace: Workspace) -> None:
    first = version(workspace).version
    with pytest.raises(mlflow_store.RegistryError, match="no champion"):
        aliases.roll_back_champion(workspace, "why not")
    assert aliases.promote_version(workspace, first, YES)
    assert aliases.promote_version(workspace, first, YES)
    assert "replaced" not in crowned(workspace).tags
    with pytest.raises(mlflow_store.RegistryError, match="a rollback is not possible"):
        aliases.roll_back_champion(workspace, "why not")


def test_scores_of_another_policy_judge_no_challenger(workspace: Workspace) -> None:
    with pytest.raises(mlflow_store.RegistryError, match="no challenger"):
        registry.get_challenger_with_policy(workspace, "test-1")
    known = version(workspace).version
    assert registry.get_challenger_with_policy(workspace, "test-1").version == known
    with pytest.raises(mlflow_store.RegistryError, match=r"holds policy test-1; the scores are of test-2"):
        registry.get_challenger_with_policy(workspace, "test-2")


def test_a_report_is_added_to_the_versions_of_its_policy_and_replaced(
    workspace: Workspace, bare: Workspace, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    page.write_text("one", encoding="utf-8")
    assert registry.attach_to_policy(bare, "test-1", [page], "report") == []
    assert not bare.state.exists()
    known = version(workspace)
    assert registry.attach_to_policy(workspace, "test-2", [page], "report") == []
    assert registry.attach_to_policy(workspace, "test-1", [page], "report") == [known.version]
    page.write_text("two", encoding="utf-8")
    registry.attach_to_policy(workspace, "test-1", [page], "report")
    with mlflow_store.connect(workspace) as client:
        kept = Path(client.download_artifacts(known.run_id, "report/page.html", str(tmp_path)))
    assert kept.read_text(encoding="utf-8") == "two"


def test_each_challenger_of_a_champion_is_one_interim_analysis(workspace: Workspace) -> None:
    first, second = (version(workspace, right) for right in (6, 8))
    assert registry.assign_analysis_number(workspace, None, first.version) == 1
    assert registry.assign_analysis_number(workspace, None, second.version) == 2
    aliases.promote_version(workspace, second.version, YES)
    champion = registry.find_champion(workspace)
    third, fourth = (version(workspace, right) for right in (7, 9))
    assert registry.assign_analysis_number(workspace, champion, third.version) == 1, "another champion"
    for _ in range(2):
        assert registry.assign_analysis_number(workspace, champion, fourth.version) == 2, (
            "the same scores, judged again"
        )
    assert registry.assign_analysis_number(workspace, champion, first.version) == 3, (
        "an old version, against the new champion"
    )
    assert registry.assign_analysis_number(workspace, None, first.version) == 1
    with pytest.raises(mlflow_store.RegistryError, match="no version 9"):
        registry.assign_analysis_number(workspace, champion, "9")


def test_a_verdict_has_the_number_of_its_interim_analysis(workspace: Workspace, pool: Pool) -> None:
    setup = Setup(workspace, load_recipe(ROOT / "config", "quickstart"), pool)
    gate = PromotionGate(max_loss_against_champion=1.0, min_gain_over_best_worker=-1.0, max_benchmark_loss=1.0)
    analyses = []
    for right in (6, 5, 4):
        known = version(workspace, right, pool_answers_key=pool.answers_key)
        verdict = apply_gate(setup, known, compared(right), gate).decision
        analyses.append((verdict.analysis, len(verdict.checks)))
        assert aliases.promote_version(workspace, known.version, verdict) is verdict.promote
        gate = gate.model_copy(update={"max_loss_against_champion": 0.0})  # no version after the first passes
    assert analyses == [(1, 3), (1, 10), (2, 10)]
    champion = crowned(workspace)
    assert champion.version == "1"
    again = apply_gate(setup, champion, compared(6), gate).decision
    assert (again.promote, len(again.checks)) == (True, 3), "not compared with itself"
    stored = registry.load_decision(workspace, known.version)
    assert (stored.analysis, stored.promote) == (2, False)


def test_a_damaged_policy_is_restored_from_a_sound_version_alone(
    workspace: Workspace, policy: Path, pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    run = workspace.runs / "test-1"
    own = Path(shutil.copytree(policy, run / "policy", ignore=shutil.ignore_patterns("*.bin")))
    write_digest(own)
    RunResult(
        steps=1, reward_before=0, reward_after=0, window=1, rollouts=1, live_calls=0, cached_calls=0, rollouts_usd=0,
        seconds=1,
    ).write(run)  # fmt: skip
    version = register(workspace, own, pool, 6)
    before = {file.name: file.read_bytes() for file in own.iterdir()}

    def damage(file: Path) -> None:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)

    damage(own / "model.safetensors")
    with pytest.raises(DataError, match=r"policy: is damaged: its file model\.safetensors"):
        register(workspace, own, pool, 6)
    restore_run(workspace, run)
    assert {file.name: file.read_bytes() for file in own.iterdir()} == before
    assert RunResult.read(run) is not None
    assert f"It was restored from version {version.version} of the registry" in caplog.text
    assert register(workspace, own, pool, 6).version == version.version
    damage(next(workspace.mlflow_artifacts.rglob("policy/model.safetensors")))
    damage(own / "model.safetensors")
    restore_run(workspace, run)
    assert not own.exists() and RunResult.read(run) is None, "training goes on from the last checkpoint"


def test_a_folder_without_a_policy_is_not_registered(workspace: Workspace, pool: Pool, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"podium\.json"):
        register(workspace, tmp_path, pool, right=6)


ASK = """
import builtins, importlib, json, sys
from pathlib import Path

plain, by_name, imported = builtins.__import__, importlib.import_module, set()
model = Path(sys.argv[1])

def note(name, place):
    if place and Path(place).is_relative_to(model):
        imported.add(name.partition(".")[0])

def import_(name, values=None, *rest, **named):
    note(name, (values or {}).get("__file__"))
    return plain(name, values, *rest, **named)

def import_module(name, *rest, **named):
    note(name, sys._getframe(1).f_globals.get("__file__"))
    return by_name(name, *rest, **named)

builtins.__import__, importlib.import_module = import_, import_module
import mlflow

question = {"input": [{"role": "user", "content": sys.argv[3]}]}
alone = mlflow.pyfunc.load_model(sys.argv[1])
mlflow.set_tracking_uri(sys.argv[4])
answer = alone.predict(question)
mlflow.flush_trace_async_logging()
mlflow.set_tracking_uri(sys.argv[2])
agent = mlflow.pyfunc.load_model("models:/conductor@champion")
streamed = list(agent.predict_stream(question))
mlflow.flush_trace_async_logging()
import ops
print(json.dumps({"answer": answer, "streamed": streamed, "ops": ops.__file__, "mlflow": mlflow.__file__,
                  "imported": sorted(imported)}))
"""


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    """Return each file with its length and time of change."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): (file.stat().st_size, file.stat().st_mtime_ns) for file in files}


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory, policy: Path, pool: Pool) -> Workspace:
    workspace = with_agent(tmp_path_factory.mktemp("released") / "checkout")
    aliases.promote_version(workspace, register(workspace, policy, pool, right=6).version, YES)
    return workspace


@pytest.mark.long  # `make test` calls and serves a checkout that was moved
def test_a_copied_version_answers_and_writes_nothing_into_its_source(
    released: Workspace, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    before = contents(released.root)
    copy = Workspace(Path(shutil.copytree(released.root, tmp_path_factory.mktemp("copies") / "project")))
    with mlflow_store.connect(copy):
        pass  # as any command of Podium does first
    model = Path(shutil.copytree(model_folder(copy, crowned(copy)), tmp_path_factory.mktemp("model") / "conductor"))
    environment = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PODIUM_ROOT"}}
    traces = f"sqlite:///{model.parent / 'traces.db'}"
    SqlAlchemyStore(traces, str(model.parent / "traces"))  # MLflow's own default for artifacts is the current folder
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(model), copy.mlflow_uri, QUESTION, traces],
        cwd=elsewhere, env=environment | {"HOME": str(elsewhere)}, capture_output=True, text=True, timeout=280,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    reply = json.loads(done.stdout.splitlines()[-1])
    outputs = reply["answer"]["custom_outputs"]
    assert "42" in reply["answer"]["output"][0]["content"][0]["text"]
    assert outputs["workflow"] == WORKFLOW
    assert [step["worker"] for step in outputs["steps"]] == ["algebraist", "algebraist"]
    assert outputs["cost_usd"] > 0 and outputs["prompt_tokens"] > 0
    *steps, last = reply["streamed"]
    assert [event["item"]["summary"][0]["text"].partition(":")[0] for event in steps] == [
        "Step 1, algebraist",
        "Step 2, algebraist",
    ]
    assert [event["output_index"] for event in reply["streamed"]] == [0, 1, 2]
    assert last["item"]["content"] == reply["answer"]["output"][-1]["content"]
    assert last["custom_outputs"]["workflow"] == WORKFLOW
    assert Path(reply["ops"]).is_relative_to(model), "ops must come with the model"
    assert "site-packages" in reply["mlflow"]
    required = {line.partition("==")[0] for line in (model / "requirements.txt").read_text("utf-8").split()}
    packages = packages_distributions()
    missing = [
        name
        for name in reply["imported"]
        if name not in sys.stdlib_module_names and name != "ops"
        and not required & {each.lower() for each in packages.get(name, [name])}
    ]  # fmt: skip
    assert missing == [], "imported to load or to answer, and not among the requirements"
    assert {"mlflow", "tenacity", "numpy"} <= set(reply["imported"]), "the search sees them"
    assert not {"torch", "transformers"} & set(reply["imported"]), "a policy made from scratch generates without them"
    assert (copy.cache / "responses.sqlite").is_file(), "in the checkout whose store holds the model"
    assert (model / ".podium" / "cache" / "responses.sqlite").is_file(), "in its own folder, where there is no checkout"
    assert contents(elsewhere) == {}, "neither in the current folder nor in the home"
    monkeypatch.setenv("PODIUM_ROOT", str(copy.root))
    assert podium("ask", QUESTION) == 0
    aliases.promote_version(copy, version(copy).version, YES)
    with sqlite3.connect(copy.state / "mlflow" / "mlflow.db") as connection:
        named = [str(row) for table in ("experiments", "runs", "logged_models", "model_versions", "trace_tags")
                 for row in connection.execute(f"SELECT * FROM {table}")]  # fmt: skip
    assert [row for row in named if str(released.root) in row or "mlruns" in row] == []
    assert contents(released.root) == before
    assert str(released.root) not in (model / "MLmodel").read_text("utf-8").replace(
        f"artifact_path: file://{released.mlflow_artifacts}", "", 1
    ), "MLflow's note of where it was logged is the only trace of the old place"


def test_a_version_says_what_it_is_and_holds_no_pickle(released: Workspace) -> None:
    known = crowned(released)
    folder = model_folder(released, known)
    assert not [file for file in folder.rglob("*") if file.suffix in (".bin", ".pkl", ".pt")]
    card = (folder / "README.md").read_text("utf-8")
    said = ("60.0 (31.3 … 83.2)", "algebraist", "`c0ffee`", "pip install -r requirements.txt", "Apache-2.0", "seed")
    for part in said:
        assert part in card, part
    with mlflow_store.connect(released) as client:
        made = client.get_model_version(mlflow_store.MODEL_NAME, known.version)
        model = client.get_logged_model(known.model_id)
        run = client.get_run(known.run_id)
        described = client.get_registered_model(mlflow_store.MODEL_NAME).description
        home = client.get_experiment(run.info.experiment_id)
    assert "60.0 % out-of-distribution (31.3 … 83.2)" in made.description
    assert "Synthetic demo" in made.description and "README.md" in made.description
    assert "workflow" in described and "traces" in home.tags["mlflow.note.content"]
    for parameters in (model.params, run.data.params):
        assert (parameters["grpo.steps"], parameters["seed"]) == ("140", "1")
    assert (run.data.tags["mlflow.source.name"], run.data.tags["mlflow.source.git.commit"]) == ("podium", "c0ffee")
    for tags in (made.tags, model.tags, run.data.tags):
        assert tags["licence"] == "code: Apache-2.0; weights: no upstream weights"
    data = {each.dataset.name: (each.dataset.digest, each.tags[0].value) for each in run.inputs.dataset_inputs}
    assert data == {"mmlu": ("m1", "evaluation"), "gpqa_diamond": ("unknown", "evaluation")}
    of = {metric.key: metric.dataset_name for metric in model.metrics}
    assert (of["mmlu/accuracy"], of["unseen/accuracy"]) == ("mmlu", None)


def test_a_version_is_linked_with_the_training_that_made_it(workspace: Workspace, policy: Path, pool: Pool) -> None:
    with mlflow_store.connect(workspace) as client:
        training = client.create_run(home := client.create_experiment("training")).info.run_id
        saved = client.create_logged_model(home, "conductor-step-00140", training, {"step": "140"}).model_id
    known = register(workspace, policy, pool, right=6, training_runs={"conductor": training}, checkpoint=saved)
    with mlflow_store.connect(workspace) as client:
        tags, run = client.get_run(training).data.tags, client.get_run(known.run_id)
        description = client.get_model_version(mlflow_store.MODEL_NAME, known.version).description
        checkpoint = client.get_logged_model(saved)
    assert [each.model_id for each in run.inputs.model_inputs] == [saved] and f"/models/{saved}" in description
    assert (checkpoint.tags["model_version"], checkpoint.tags["dvc_revision"]) == (known.version, "d41d8c")
    scored = {metric.key: (metric.value, metric.step) for metric in checkpoint.metrics or []}
    assert scored["mmlu/accuracy"] == (0.6, 140) and "| mmlu |" in description
    assert (tags["model_version"], tags["release_run"]) == (known.version, known.run_id)
    assert run.data.tags["training_run.conductor"] == training
    assert (run.data.tags["podium.purpose"], run.data.tags["model_version"]) == ("release", known.version)
    assert run.info.run_name == f"release of version {known.version} test-1"
    assert f"/runs/{training}" in description


def test_a_model_whose_libraries_are_missing_says_which(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("pydantic==1.0\nno-such-library==2.0\n", encoding="utf-8")
    with pytest.raises(PodiumError, match=r"^no-such-library: not installed.*-m pip install -r .*requirements\.txt"):
        check_requirements_installed(tmp_path / "requirements.txt")


def test_a_moved_checkout_keeps_its_champion_and_ask_prints_how_the_answer_came(
    released: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    shutil.copytree(released.root, tmp_path / "old")
    old = Workspace(tmp_path / "old")
    old.ledger.unlink(missing_ok=True)
    shutil.rmtree(old.cache, ignore_errors=True)  # so that it has to call and pay
    with mlflow_store.connect(old):
        pass  # as if it had been made there
    caplog.clear()
    moved = Workspace((tmp_path / "old").rename(tmp_path / "new"))
    monkeypatch.setenv("PODIUM_ROOT", str(moved.root))
    monkeypatch.setenv("COLUMNS", "120")
    assert podium("ask", QUESTION) == 0
    printed = capsys.readouterr().out
    for expected in ("model_id = [0, 0]", "algebraist", "Check it.", "42", "tokens, $"):
        assert expected in printed
    assert f"the workspace was moved here from {tmp_path / 'old'}" in caplog.text
    caplog.clear()
    assert moved.ledger.is_file(), "the moved checkout's own cache and ledger"
    assert not (tmp_path / "old").exists()
    assert podium("ask", QUESTION) == 0
    assert "this checkout lay" not in caplog.text
    with mlflow_store.connect(moved) as client:
        import mlflow

        home = mlflow_store.get_or_create_experiment(client, moved)
        newest, *_ = mlflow.search_traces(locations=[home], max_results=1, return_type="list")
    spans = {span.span_id: span for span in newest.data.spans}
    written, *steps = sorted((s for s in spans.values() if s.span_type == "CHAT_MODEL"), key=lambda s: s.start_time_ns)
    assert (written.name, spans[written.parent_id].name) == ("Conductor", "ask")
    usage = written.attributes["mlflow.chat.tokenUsage"]
    assert usage["input_tokens"] > 20 and 10 < usage["output_tokens"] <= 64
    assert [span.name for span in steps] == ["1 · algebraist", "2 · algebraist"]
    assert {spans[span.parent_id].name for span in steps} == {"workflow"}
    assert newest.info.token_usage["total_tokens"] > 0
    assert newest.info.cost["total_cost"] > 0


@pytest.mark.long
@pytest.mark.slow
def test_the_champion_is_served_and_followed_until_ctrl_c(
    workspace: Workspace, tmp_path: Path, policy: Path, pool: Pool
) -> None:
    (workspace.config / "serving.yaml").write_text("follow_s: 0.2\n", encoding="utf-8")
    aliases.promote_version(workspace, register(workspace, policy, pool, right=6).version, YES)
    command = (*PODIUM, "serve", "--port", "0")
    with Running(tmp_path / "served", pool, command, PODIUM_ROOT=str(workspace.root)) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=200)
        request = {"model": "conductor", "messages": [{"role": "user", "content": QUESTION}]}
        first = client.chat.completions.create(**request)  # type: ignore[call-overload]
        body: dict[str, Any] = {"input": [{"role": "user", "content": QUESTION}]}
        body |= {"model": "conductor", "podium": {"workflow": True}}
        responses = f"{server.url}/v1/responses"
        reply = httpx.post(responses, json=body, trust_env=False, timeout=200).raise_for_status()
        aliases.promote_version(workspace, register(workspace, policy, pool, right=8).version, YES)
        server.until_version("2")
        second = client.chat.completions.create(**request, store=False)  # type: ignore[call-overload]
        assert server.end() == 0
    assert "Traceback" not in server.text, server.text
    for whole in (first, second):
        assert "42" in whole.choices[0].message.content
    assert [whole.model_extra["podium"]["version"] for whole in (first, second)] == ["1", "2"]
    assert "42" in reply.json()["output"][-1]["content"][0]["text"]
    assert reply.json()["podium"]["workflow"] == WORKFLOW
    with mlflow_store.connect(workspace) as client_of_mlflow:
        import mlflow

        home = mlflow_store.get_or_create_experiment(client_of_mlflow, workspace)
        traces = mlflow.search_traces(locations=[home], return_type="list")
    by_request = {trace.info.tags.get("request"): trace for trace in traces}
    assert by_request.keys() >= {first._request_id, second._request_id, reply.headers["x-request-id"]}
    shown = by_request[first._request_id]
    assert sorted(span.name for span in shown.data.spans if span.span_type == "CHAT_MODEL") == [
        "1 · algebraist", "2 · algebraist", "Conductor",
    ]  # fmt: skip
    assert by_request[reply.headers["x-request-id"]].info.tags["mlflow.traceName"] == "/v1/responses"
    assert "6 " in str(shown.data.spans[0].inputs)
    assert "cdot" not in by_request[second._request_id].to_json(), "store: false"
