"""Each missing requirement is named alone; on a machine without anything the list is complete."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from ops.config import Price, Recipe, Setup, Worker, load_pool, load_recipe
from ops.core.installation import resources_folder
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.planning.machine import Machine
from ops.planning.recipe_plan import make_plan
from ops.planning.requirements import find_missing
from ops.planning.retirement import is_unlisted, retirement_date
from ops.spending.ledger import Bill, Ledger
from ops.workers.litellm_private import read_model_table
from tests.unit.planning.conftest import MACHINE, NOTHING, TODAY, Sound

HUB = ("math500", "mmlu", "rlpr", "livecodebench", "aime25", "gpqa_diamond", "bigcodebench")
KEYS = ("GEMINI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "DEEPINFRA_API_KEY")


def refused(sound: Sound, **changes: Any) -> list[str]:
    return [each.what for each in find_missing(sound.plan(**changes)) if each.refuses]


def warned(sound: Sound, **changes: Any) -> list[str]:
    return [each.what for each in find_missing(sound.plan(**changes)) if not each.refuses]


def with_first(sound: Sound, **fields: Any) -> dict[str, Any]:
    """Return the pool with these fields of its first worker changed, as an argument of `plan`."""
    first, *others = sound.setup.pool.workers
    return {"pool": {"workers": (first.model_copy(update=fields), *others)}}


CHANGES: dict[str, dict[str, Any]] = {
    "bubblewrap": {"machine": replace(MACHINE, has_bubblewrap=False)},
    "vllm": {"machine": replace(MACHINE, packages=frozenset({"deepspeed"}))},
    "deepspeed": {"machine": replace(MACHINE, packages=frozenset({"vllm"}))},
    "host memory": {"machine": replace(MACHINE, memory_gib=100.0)},
    "disk": {"machine": replace(MACHINE, disk_gib=200.0)},
    "2 GPUs": {"machine": replace(MACHINE, gpus=MACHINE.gpus[:1])},
    "budget.run_usd": {"recipe": {"budget": {"run_usd": 100.0}}},
    "vLLM's cache": {"recipe": {"grpo": {"vllm_memory": 0.22}}},
    "GPU memory": {"deepspeed": {"zero_optimization": {"stage": 3}}},
    "memory for evaluation": {"recipe": {"evaluation": {"writer": "transformers", "batch": 256}}},
    "shape of unknown/unheard-of": {"recipe": {"policy": {"model": "unknown/unheard-of"}}},
    "recursive.benchmarks": {"recipe": {"recursive": {"benchmarks": ["aime25", "rlpr"]}}},
    "there/not.jsonl": {"recipe": {"benchmarks": {"aime25": {"source": "file", "test_file": "there/not.jsonl"}}}},
    **{f"benchmarks.{name}.revision": {"recipe": {"benchmarks": {name: {"source": "hub"}}}} for name in HUB},
}


@pytest.mark.parametrize("what", CHANGES)
def test_each_missing_requirement_is_named_alone(paper: Sound, what: str) -> None:
    assert find_missing(paper.plan()) == []
    assert refused(paper, **CHANGES[what]) == [what]


@pytest.mark.parametrize("key", KEYS)
def test_a_missing_key_is_named_once_with_its_workers(paper: Sound, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.delenv(key)
    found = find_missing(paper.plan())
    assert [each.what for each in found] == [key]
    assert all(worker in found[0].why for worker, its in paper.setup.pool.missing_keys().items() if its == key)


def test_a_key_that_holds_a_line_break_is_named_without_its_value(
    paper: Sound, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEYS[0], "sk-hush\n")
    [found] = find_missing(paper.plan())
    assert found.what == KEYS[0]
    assert "white space" in found.why and "hush" not in str(found)


def test_an_address_that_is_none_is_named(paper: Sound, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_CACHE_URL", "garbage")
    assert refused(paper) == ["PODIUM_CACHE_URL"]


def test_a_token_is_asked_for_a_gated_dataset_alone(paper: Sound, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    assert refused(paper) == ["HF_TOKEN"]
    elsewhere = {"source": "embedded"}
    assert find_missing(paper.plan(recipe={"benchmarks": {"gpqa_diamond": elsewhere}})) == []
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "stored")
    assert find_missing(paper.plan()) == []


def test_on_a_machine_that_has_nothing_the_list_is_complete(paper: Sound, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*KEYS, "HF_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    unpinned = {name: {"source": "hub"} for name in HUB}
    recipe = {"benchmarks": unpinned, "budget": {"run_usd": 1.0}, "grpo": {"vllm_memory": 0.22}}
    found = find_missing(paper.plan(machine=NOTHING, recipe=recipe))
    assert {each.what for each in found if each.refuses} == {
        *(f"benchmarks.{name}.revision" for name in HUB), "HF_TOKEN", *KEYS, "bubblewrap", "budget.run_usd",
        "vllm", "deepspeed", "2 GPUs", "vLLM's cache", "host memory", "disk", "memory for evaluation",
    }  # fmt: skip
    assert all(each.why and each.remedy for each in found)


def test_one_gpu_is_one_too_few_and_another_size_may_do(
    paper: Sound, smaller: Callable[[int, float], Machine]
) -> None:
    assert refused(paper, machine=smaller(0, 80.0)) == ["2 GPUs"]
    assert "GPU memory" in refused(paper, machine=smaller(2, 24.0))
    # ZeRO-3 without offload needs more than two of 80 GB.
    states = {"deepspeed": {"zero_optimization": {"stage": 3}}}
    assert refused(paper, **states) == ["GPU memory"]
    assert refused(paper, **states, machine=smaller(2, 139.6)) == []


def test_a_small_policy_is_trained_on_a_cpu_but_not_beside_vllm(paper: Sound) -> None:
    bare, model = replace(MACHINE, gpus=()), {"model": "SmolLM2-135M-Instruct"}

    def plan(machine: Machine, **grpo: Any) -> list[Any]:
        alone = {"deepspeed": None, "processes": 1, "vllm_memory": 0.5, "vllm_max_model_length": 9216}
        recipe = {"policy": model, "grpo": alone | grpo}
        return find_missing(paper.plan(machine=machine, recipe=recipe, deepspeed=None), ("training",))

    [found] = plan(bare)
    assert found.what == "a GPU"
    assert "grpo.vllm" in found.why
    assert "grpo.vllm: false" in found.remedy
    assert plan(bare, vllm=False) == []
    assert plan(MACHINE) == []


def test_a_vllm_server_is_required_and_uses_no_memory_of_the_training_gpus(paper: Sound) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        recipe = {"grpo": {"vllm_mode": "server", "vllm_server_url": url}}
        plan = paper.plan(recipe=recipe)
        assert find_missing(plan) == []
        beside = paper.plan().memory
        assert plan.memory is not None and beside is not None
        assert beside.gpu_peak_gib - plan.memory.gpu_peak_gib == pytest.approx(0.35 * (plan.gpu_gib or 0))
    assert refused(paper, recipe=recipe) == [url]


@contextmanager
def serving(*models: str) -> Iterator[str]:
    """Return the URL of a server that reports these models."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"data": [{"id": model} for model in models]}).encode())

        def log_message(self, *_: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_server_that_writes_has_to_be_there_and_to_serve_the_policy(paper: Sound) -> None:
    with serving("paper-0123456789ab") as url:
        recipe = {"evaluation": {"writer": url}}
        assert find_missing(paper.plan(recipe=recipe)) == []
        # The cold start, another policy, is scored too.
        lacking = find_missing(paper.plan(recipe=recipe | {"cold_start": {"steps": 1}}))
        [found] = [each for each in lacking if "cold start" not in each.what]  # its memory is a separate requirement
        assert (found.what, "cold start" in found.why) == (url, True)
    [found] = find_missing(paper.plan(recipe=recipe))
    assert (found.what, "vllm serve" in found.remedy) == (url, True)
    assert find_missing(paper.plan(recipe=recipe), ("data", "workers", "training")) == []
    with serving("Qwen/Qwen2.5-7B") as url:
        [found] = find_missing(paper.plan(recipe={"evaluation": {"writer": url}}))
        assert "it serves Qwen/Qwen2.5-7B" in found.why


def test_settings_that_need_vllm_are_named_once(paper: Sound) -> None:
    bare = replace(MACHINE, packages=frozenset({"deepspeed"}))
    [found] = find_missing(paper.plan(machine=bare))
    assert found.why == "grpo.vllm and evaluation.writer ask for it"
    assert find_missing(paper.plan(machine=bare), ("evaluation",)) == [found]
    plain = {"evaluation": {"writer": "transformers", "batch": 8}}
    assert find_missing(paper.plan(machine=bare, recipe=plain), ("evaluation",)) == []


def test_other_engines_that_would_fit_are_named(paper: Sound) -> None:
    found = find_missing(paper.plan(deepspeed={"zero_optimization": {"stage": 3}}))
    assert "ZeRO-3 + offload" in found[0].remedy


def test_a_rehearsal_needs_neither_keys_nor_money(paper: Sound, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in KEYS:
        monkeypatch.delenv(key)
    assert refused(paper, recipe={"replay": {"match": "problem"}, "budget": {"run_usd": 0.01}}) == []
    assert set(refused(paper, recipe={"replay": {"on_miss": "live"}})) == set(KEYS)


def test_programs_of_known_origin_need_no_wall_and_neither_does_a_mix_without_programs(paper: Sound) -> None:
    bare = replace(MACHINE, has_bubblewrap=False)
    assert refused(paper, machine=bare, recipe={"grading": {"isolation": "resource_limits"}}) == []


def test_a_cap_within_the_estimates_range_is_reported(paper: Sound) -> None:
    assert warned(paper, recipe={"budget": {"run_usd": 800.0}}) == ["budget.run_usd"]
    assert warned(paper, recipe={"budget": {"run_usd": 1e6, "month_usd": 10.0}}) == ["budget.month_usd"]


def test_a_runs_spending_counts_against_its_cap(paper: Sound) -> None:
    budget = {"recipe": {"budget": {"run_usd": 2000.0}}}
    assert refused(paper, **budget) == []
    plan = paper.plan(**budget)
    with closing(Ledger(paper.setup.workspace.ledger)) as ledger:
        held = ledger.reserve(plan.setup.run, 1900.0, 2000.0)
        ledger.settle(Bill(held, "precache", "gpt-5", 1900.0, Usage(100, 800)))
    [found] = [each for each in find_missing(paper.plan(**budget)) if each.refuses]
    assert found.what == "budget.run_usd"
    assert "$2,000.00, of which $1,900.00 are spent, are less than what the run still costs" in found.why


def test_an_unknown_price_is_named(paper: Sound) -> None:
    unpriced = with_first(paper, model="gemini/of-no-price", price=None, thinking_budget=None)
    assert refused(paper, **unpriced) == [f"workers.{paper.setup.pool.names[0]}.price"]


def test_a_worker_that_is_served_here_needs_vllms_environment(paper: Sound, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PODIUM_VLLM_PYTHON", raising=False)
    *others, last = paper.setup.pool.workers
    served = last.model_copy(update={
        "model": "hosted_vllm/m", "api_base": "http://127.0.0.1:8100/v1", "serve": {"model_path": "m"},
    })  # fmt: skip
    found = refused(paper, pool={"workers": (*others, Worker.model_validate(dict(served)))})
    assert len(found) == 1 and found[0].endswith(".venv-vllm/bin/python")


def test_a_setting_that_litellm_would_drop_is_named(paper: Sound) -> None:
    claude = {"model": "anthropic/claude-sonnet-5-5", "temperature": None, "thinking_budget": None}
    [found] = find_missing(paper.plan(**with_first(paper, **claude, reasoning_effort="none")))
    assert found.what == f"workers.{paper.setup.pool.names[0]}.reasoning_effort" and found.refuses
    assert "paper.yaml, LiteLLM silently drops 'none'" in found.why and found.remedy.startswith("Remove it")


@pytest.mark.parametrize(("days", "is_named"), [(-1, False), (0, False), (8, True), (61, False)])
def test_an_announced_price_is_named_before_its_day(paper: Sound, days: int, is_named: bool) -> None:
    later = [{"since": TODAY + timedelta(days=days), "input": 2.5, "output": 20.0}]
    price = Price.model_validate({"input": 1.25, "output": 10.0, "later": later})
    found = find_missing(paper.plan(**with_first(paper, price=price)))
    named = [(f"workers.{paper.setup.pool.names[0]}.price", False)] if is_named else []
    assert [(each.what, each.refuses) for each in found] == named


def test_prompts_at_hand_that_do_not_fit_are_counted_before_anything_is_paid(tmp_path: Path) -> None:
    """Rows of the recipe's files, before and after they are loaded; the quickstart's policy reads 384 tokens."""
    config = resources_folder() / "config"
    rows = [{"id": str(n), "question": f"{'word ' * (400 if n < 2 else 4)}{n}?", "answer": str(n)} for n in range(5)]
    for name in ("train.jsonl", "test.jsonl"):
        (tmp_path / name).write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    quick = load_recipe(config, "quickstart").model_dump()

    def found(max_tokens: int) -> list[Any]:
        changed = {
            "benchmarks": {"math500": {"source": "file", "train_file": "train.jsonl", "test_file": "test.jsonl"}},
            "policy": quick["policy"] | {"max_tokens": max_tokens},
        }
        recipe = Recipe.model_validate(quick | changed)
        setup = Setup(Workspace(tmp_path), recipe, load_pool(config, "quickstart"))
        return find_missing(make_plan(setup, MACHINE), ("training",))

    [each] = found(384)
    assert (each.what, each.refuses) == ("room for prompts", True)
    assert "4 of 10 prompts do not fit" in each.why and "policy.max_tokens of 384 leaves 328" in each.why
    enough = re.search(r"Raise policy.max_tokens to (\d+)", each.remedy)
    assert enough is not None
    assert found(int(enough[1])) == []


# ── models that end ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("days", "expected"), [(-300, [True]), (0, [True]), (60, [False]), (61, [])])
def test_a_retired_model_is_refused_and_one_that_soon_is_is_named(
    paper: Sound, days: int, expected: list[bool]
) -> None:
    """`expected`: whether each finding refuses the run."""
    found = find_missing(paper.plan(**with_first(paper, retired=TODAY + timedelta(days=days))))
    model = paper.setup.pool.workers[0].model
    assert [(each.what, each.refuses) for each in found] == [(model, refuses) for refuses in expected]


def test_litellms_map_says_when_a_model_ends() -> None:
    dated = {
        name: entry["deprecation_date"]
        for name, entry in read_model_table().items()
        if entry.get("deprecation_date") and name.startswith("gemini/")
    }
    assert dated, "LiteLLM's map carries no dates any more"
    name, day = next(iter(dated.items()))
    assert str(retirement_date(Worker(name="w", model=name))) == day
    assert retirement_date(Worker(name="w", model=name, api_base="http://localhost/v1")) is None


def test_another_providers_date_is_not_this_ones() -> None:
    """The name without a provider is Vertex's there."""
    assert read_model_table()["gemini-2.5-pro"].get("deprecation_date")
    assert retirement_date(Worker(name="w", model="gemini/gemini-2.5-pro")) is None


def test_a_model_missing_in_litellms_map_is_reported_as_possibly_retired() -> None:
    assert is_unlisted(Worker(name="w", model="anthropic/claude-none-of-that"))
    assert not is_unlisted(Worker(name="w", model="openai/gpt-5"))
    assert not is_unlisted(Worker(name="w", model="openai/mine", api_base="http://localhost/v1"))
    assert not is_unlisted(Worker(name="w", model="local/guesser"))
