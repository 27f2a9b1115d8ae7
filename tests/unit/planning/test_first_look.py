"""`first-look` and `pilot`: the pool is replaced, what they cost, and what they go without."""

from __future__ import annotations

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import copytree
from typing import ClassVar

import click
import pytest
import yaml

from assets.resources import RunResource
from ops.config import Setup, Snapshot
from ops.core.errors import ConfigError
from ops.core.installation import resources_folder
from ops.core.workspace import Workspace
from ops.planning.estimate import add_costs
from ops.planning.recipe_plan import make_plan
from ops.planning.requirements import find_missing
from ops.planning.requirements.data import report_left_out
from pipelines.first_look import choose_excluded_workers, write_recipe
from tests.command import podium
from tests.unit.planning.conftest import NOTHING

CONFIG = resources_folder() / "config"
ONE_KEY = {
    "openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "gemini": "GEMINI_API_KEY",
    "deepinfra": "DEEPINFRA_API_KEY",
}  # fmt: skip


TOO_COSTLY = {"anthropic": ["claude-opus-5-5"]}
"""Pool → its workers above the limit of `first-look`, which a person agrees to leave out."""


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    for variable in ONE_KEY.values():
        monkeypatch.setenv(variable, "a-key")


def setup(name: str) -> Setup:
    return Setup.read(Workspace(CONFIG.parent), name)


@pytest.mark.parametrize("pool", ONE_KEY)
def test_a_first_look_with_one_key_costs_at_most_three_dollars_and_lacks_nothing(pool: str, tmp_path: Path) -> None:
    plan = make_plan(Setup.read(_copied(tmp_path), f"first-look@{pool}"), NOTHING)
    assert plan.recipe.budget.run_usd <= 3
    assert 0 < add_costs(plan.stages).usd.expected <= 3
    assert [each.what for each in find_missing(plan) if each.refuses] == TOO_COSTLY.get(pool, [])
    assert plan.test_questions == {"math500": 100, "mmlu": 100, "rlpr": 100, "aime25": 30}
    alone = next(stage for stage in plan.stages if stage.name == "every worker alone")
    assert alone.calls.expected == 4 * 20 * len(plan.pool.workers)


@pytest.mark.parametrize("pool", ONE_KEY)
def test_a_pilot_asks_the_questions_of_the_first_look_and_more(pool: str, tmp_path: Path) -> None:
    plan = make_plan(Setup.read(_copied(tmp_path), f"pilot@{pool}"), NOTHING)
    assert add_costs(plan.stages).usd.expected < plan.recipe.budget.run_usd
    assert [each.what for each in find_missing(plan) if each.refuses] == TOO_COSTLY.get(pool, [])
    first = setup(f"first-look@{pool}").recipe
    assert plan.recipe.benchmarks == first.benchmarks
    assert plan.recipe.evaluation.questions == 100 > (first.evaluation.questions or 0)


def test_a_gated_benchmark_is_left_out_with_a_line_unless_there_is_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    without = setup("first-look")
    assert "gpqa_diamond" not in without.recipe.benchmarks
    [note] = [each for each in find_missing(make_plan(without, NOTHING)) if each.what == "gpqa_diamond"]
    assert not note.refuses and "HF_TOKEN" in note.remedy
    monkeypatch.setenv("HF_TOKEN", "hf_x")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # no answer is no refusal
    assert "gpqa_diamond" in setup("first-look").recipe.benchmarks
    assert setup("first-look").left_out == ()


class AuthCheck(BaseHTTPRequestHandler):
    """The hub's answer to whether an account may read a dataset."""

    asked: ClassVar[list[tuple[str, str | None]]] = []
    status = 200

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["authorization"]))
        self.send_response(self.status)
        if self.status != 200:
            self.send_header("X-Error-Code", "GatedRepo")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.mark.parametrize("status", [200, 403])
def test_a_gated_benchmark_whose_terms_were_not_accepted_is_left_out_with_a_line(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AuthCheck, "status", status)
    monkeypatch.setattr(AuthCheck, "asked", [])
    monkeypatch.setenv("HF_TOKEN", "hf_x")
    with ThreadingHTTPServer(("127.0.0.1", 0), AuthCheck) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{hub.server_port}")
        made = setup("first-look")
        hub.shutdown()
    assert AuthCheck.asked == [("/api/datasets/Idavidrein/gpqa/auth-check", "Bearer hf_x")]
    assert ("gpqa_diamond" in made.recipe.benchmarks) == (status == 200)
    if status == 403:
        [note] = [each for each in find_missing(make_plan(made, NOTHING)) if each.what == "gpqa_diamond"]
        assert not note.refuses and "\n" not in str(note)
        assert "the account of the hub's token has not accepted its terms, and the recipe goes without it" in note.why
        assert "accept its terms on its page on the hub" in note.remedy


def test_a_gated_benchmark_of_a_recipe_that_needs_it_is_still_a_refusal() -> None:
    assert "HF_TOKEN" in {each.what for each in find_missing(make_plan(setup("paper"), NOTHING)) if each.refuses}


def test_no_recipe_is_refused_for_an_unpinned_dataset() -> None:
    for file in (CONFIG / "recipes").glob("*.yaml"):
        named = setup(file.stem).recipe.benchmarks.items()
        assert [name for name, source in named if source.source == "hub" and source.revision is None] == []


def test_expensive_workers_are_left_out_with_a_line_and_the_median_price_writes() -> None:
    assert setup("first-look@anthropic").pool.names == ("claude-sonnet-5-5", "claude-haiku-5-5")
    assert [each.what for each in setup("first-look@anthropic").left_out] == ["gpqa_diamond", "claude-opus-5-5"]
    writers = {pool: getattr(setup(f"first-look@{pool}").recipe.policy, "worker", "") for pool in (*ONE_KEY, "ollama")}
    assert writers == {
        "openai": "gpt-5.6-luna", "anthropic": "claude-sonnet-5-5", "gemini": "gemini-3.8-flash",
        "deepinfra": "gpt-oss-120b-turbo", "ollama": "qwen3-8b",
    }  # fmt: skip


def test_a_worker_above_the_limit_is_left_out_only_where_the_recipe_names_it(tmp_path: Path) -> None:
    workspace = _copied(tmp_path)

    def refused(**more: object) -> list[str]:
        recipe = {"base": "first-look", "name": "own", "pool": "anthropic", **more}
        (workspace.config / "recipes" / "own.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
        plan = make_plan(Setup.read(workspace, "own"), NOTHING)
        return [str(each) for each in report_left_out(plan) if each.refuses]

    [line] = refused()
    assert re.match(r"claude-opus-5-5: costs more than 12 USD per million output tokens", line)
    assert "write `without: [claude-opus-5-5]`" in line
    assert refused(without=["another"]) == [line.replace("[claude", "[another, claude")]
    assert refused(without=["claude-opus-5-5"]) == [], "the remedy that the line names"
    assert refused(max_output_price=30.0) == []


def test_init_asks_before_it_leaves_out_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace, name = _copied(tmp_path), "first-look-anthropic"
    write_recipe(workspace, "anthropic")

    def left() -> list[str]:
        return [each.what for each in Setup.read(workspace, name).left_out if not each.agreed]

    with pytest.raises(ConfigError, match=r"claude-opus-5-5 costs more than 12 USD.*--without claude-opus-5-5"):
        choose_excluded_workers(workspace, name, True, ())
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("click.confirm", lambda *_, **__: False)
    with pytest.raises(click.exceptions.Exit):
        choose_excluded_workers(workspace, name, False, ())
    assert left() == ["claude-opus-5-5"]
    monkeypatch.setattr("click.confirm", lambda *_, **__: True)
    choose_excluded_workers(workspace, name, False, ())
    assert left() == []
    write_recipe(workspace, "anthropic")
    assert left() == [], "the answer is in the recipe"


def test_init_takes_the_flag_for_the_answer(tmp_path: Path) -> None:
    workspace, name = _copied(tmp_path), "first-look-anthropic"
    write_recipe(workspace, "anthropic")
    choose_excluded_workers(workspace, name, True, ("claude-opus-5-5",))
    assert [each.agreed for each in Setup.read(workspace, name).left_out] == [True, True]


def test_a_limit_below_every_price_is_refused(tmp_path: Path) -> None:
    workspace = _copied(tmp_path)
    recipe = {"base": "first-look", "name": "cheap", "max_output_price": 0.01}
    (workspace.config / "recipes" / "cheap.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"max_output_price.*every worker of pool 'openai'"):
        Setup.read(workspace, "cheap")


def test_the_pool_of_a_recipe_is_replaced_by_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert podium("plan", "first-look", "--pool", "gemini") == 0
    assert "gemini-3.8-flash writes each workflow" in capsys.readouterr().out
    taken = Snapshot.capture(CONFIG, "first-look@gemini", None, "commit")
    assert (taken.recipe_file, taken.recipe.pool, taken.pool.name) == ("first-look@gemini", "gemini", "gemini")
    assert podium("plan", "first-look", "--pool", "nothing") == 1
    assert "nothing.yaml: does not exist. The pools are: anthropic, deepinfra, frontier" in capsys.readouterr().err


def test_another_pool_may_not_make_an_embedded_recipe_unsafe() -> None:
    with pytest.raises(ConfigError, match=r"taken from quickstart\.yaml"):
        setup("quickstart@openai")


def _copied(root: Path) -> Workspace:
    copytree(CONFIG, root / "config")
    (root / "data").symlink_to(CONFIG.parent / "data")
    return Workspace(root)


def test_a_router_over_answers_that_are_there_costs_nothing_more() -> None:
    stages = {stage.name: stage for stage in make_plan(setup("first-look"), NOTHING).stages}
    assert "baselines" not in stages and "every worker alone" in stages


def test_a_repeated_run_has_the_same_pool() -> None:
    asked = Snapshot.capture(CONFIG, "first-look@gemini", 7, "commit")
    again = RunResource(root=str(CONFIG.parent), recipe="quickstart").for_new_run(asked)
    assert (again.recipe, again.pool, again.seed) == ("first-look", "gemini", 7)
    assert again.get_snapshot().recipe_file == "first-look@gemini"
    assert again.make_run_config()["resources"]["podium"]["config"]["pool"] == "gemini"
