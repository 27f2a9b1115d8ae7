"""Pools: the shipped ones, invalid files, the difference between two, and prices that change at an announced day."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from ops.config import Pool, Price, Worker, load_pool, pool_file
from ops.core.errors import ConfigError
from ops.core.usage import Usage
from ops.workers.litellm_private import read_model_table
from ops.workers.new_pool import create_pool
from ops.workers.pool import SettingChange, build_pool_table, compare_pools, list_special_prices
from ops.workers.price_table import read_price
from ops.workers.providers import find_price, import_litellm, max_prompt_tokens, request_settings
from tests.command import podium
from tests.unit.workers.conftest import ask

CONFIG = Path(__file__).parents[3] / "config"
TOOL: dict[str, Any] = {"name": "a", "model": "local/editor", "price": {"input": 1, "output": 2}}


def pool(*workers: dict[str, Any]) -> Pool:
    return Pool.model_validate({"name": "mine", "workers": list(workers)})


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Pool, dict[str, dict[str, Any]]]:
    """Return a shipped pool and the settings that are sent to each worker, with keys for all providers."""
    loaded = load_pool(CONFIG, name)
    for variable in set(loaded.missing_keys().values()):
        monkeypatch.setenv(variable, "test-key")
    return loaded, {worker.name: request_settings(worker, "paper.yaml") for worker in loaded.workers}


def test_the_paper_pool_has_the_papers_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    paper, settings = load("paper", monkeypatch)
    assert len(paper.workers) == 7
    assert settings["gemini-2.5-pro"]["thinking"] == {"type": "enabled", "budget_tokens": 128}
    assert "thinking" not in settings["claude-sonnet-4"]
    assert settings["gpt-5"]["reasoning_effort"] == "minimal"
    assert "temperature" not in settings["gpt-5"]
    for name in ("qwen3-32b-thinking", "qwen3-32b-direct"):
        qwen = settings[name]
        assert (qwen["top_p"], qwen["top_k"], qwen["presence_penalty"]) == (0.8, 20, 1.0)


def test_the_paper_pool_has_its_unconstrained_settings_as_a_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    paper, (free, settings) = load_pool(CONFIG, "paper"), load("paper:unconstrained", monkeypatch)
    assert (free.name, free.names) == ("paper:unconstrained", paper.names)
    assert {w.name: w.max_tokens for w in free.workers} == {
        "gemini-2.5-pro": 65535, "claude-sonnet-4": 64000, "gpt-5": 128000, "r1-distill-qwen-32b": 20480,
        "gemma-3-27b": 20480, "qwen3-32b-thinking": 20480, "qwen3-32b-direct": 20480,
    }  # fmt: skip
    assert settings["gemini-2.5-pro"]["thinking"] == {"type": "enabled", "budget_tokens": 32768}
    assert settings["claude-sonnet-4"]["thinking"] == {"type": "enabled", "budget_tokens": 32768}
    assert "temperature" not in settings["claude-sonnet-4"]
    assert settings["gpt-5"]["reasoning_effort"] == "high"
    assert load_pool(CONFIG, "paper:unconstrained-bigcodebench").worker("gpt-5").reasoning_effort == "medium"
    assert len({paper.answers_key, free.answers_key}) == 2
    assert pool_file(CONFIG, "paper:unconstrained") == CONFIG / "pools" / "paper.yaml"
    assert compare_pools(paper, free).affects_answers == paper.names


def test_the_local_pool_is_the_quickstarts_and_a_model() -> None:
    local, tools = (load_pool(CONFIG, name) for name in ("local-llm", "quickstart"))
    changes = compare_pools(tools, local)
    assert (changes.added, changes.removed, changes.changed) == (("smollm2-135m",), (), {})


def test_the_prices_of_the_paper_pool_are_litellms(monkeypatch: pytest.MonkeyPatch) -> None:
    paper, _ = load("paper", monkeypatch)
    for worker in paper.workers:
        if worker.name in ("claude-sonnet-4", "gemini-2.5-pro"):  # not in LiteLLM's table; costlier above 200k tokens
            continue
        price, listed = find_price(worker, ""), find_price(worker.model_copy(update={"price": None}), "")
        assert (price.input, price.output) == pytest.approx((listed.input, listed.output))


def test_the_models_of_today_are_in_litellms_map_and_not_retired() -> None:
    library = import_litellm()
    for worker in load_pool(CONFIG, "frontier").workers:
        model, provider, *_ = library.get_llm_provider(worker.model)
        entry = library.model_cost.get(worker.model) or library.model_cost[model]
        assert entry["litellm_provider"] == provider
        retired = entry.get("deprecation_date")
        assert retired is None or retired >= "2027-03-01", (worker.name, retired)
        price = find_price(worker, "frontier.yaml")
        assert 0 < price.input < price.output


def test_the_day_of_retirement_is_shown_and_is_no_part_of_an_identity() -> None:
    paper = load_pool(CONFIG, "paper")
    retired = {worker.name: str(worker.retired) for worker in paper.workers if worker.retired}
    assert retired == {"gemini-2.5-pro": "2026-12-01", "claude-sonnet-4": "2026-06-15", "gpt-5": "2026-12-11"}
    workers = tuple(worker.model_copy(update={"retired": None}) for worker in paper.workers)
    unknown = paper.model_copy(update={"workers": workers})
    assert (unknown.answers_key, unknown.prices_key) == (paper.answers_key, paper.prices_key)
    changes = compare_pools(unknown, paper)
    assert (changes.affects_answers, changes.affects_price) == ((), ())
    assert str(changes).splitlines()[0] == "~ gemini-2.5-pro: retired: none → 2026-12-01"
    tags = [row[-1] for row in build_pool_table(paper)[1]]
    assert tags[:2] == ["closed, retired 2026-12-01", "closed, retired 2026-06-15"]
    assert Pool.model_validate_json(paper.model_dump_json()) == paper


def test_every_key_that_a_pool_names_is_in_the_example_environment() -> None:
    named = {line.split("=")[0] for line in (CONFIG.parent / ".env.example").read_text(encoding="utf-8").splitlines()}
    for file in (CONFIG / "pools").glob("*.yaml"):
        needed = {w.api_key_env for w in load_pool(CONFIG, file.stem).workers if w.api_key_env}
        assert needed <= named, file


NO_URLS = (
    "localhost:8000", "localhost", "file:///etc/passwd", "ftp://host/v1", "http://", "http:///v1", "//host/v1", "",
    "http://host:port/v1", "http://host:99999/v1", "http://[::1/v1", "http://host/v1\n", "http://ho st/v1", "redis://host",
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"workers": []}, "workers", "at least 1"),
        ({"workers": [TOOL, TOOL]}, "workers", "duplicate worker name a"),
        ({"workers": [TOOL | {"temprature": 1}]}, "workers.0.temprature", "not a known key"),
        ({"wrokers": []}, "wrokers", "not a known key"),
        ({"workers": [TOOL | {"temperature": "hot"}]}, "workers.0.temperature", "number"),
        ({"workers": [TOOL | {"price": {"input": -1, "output": 1}}]}, "workers.0.price.input", "greater"),
        ({"workers": [TOOL | {"api_key_env": "sk-not-a-name"}]}, "workers.0.api_key_env", "pattern"),
        ({"description": "key AIzaSyA-1234567890123456789012345678901"}, "", "API key"),
        ({"workers": [TOOL | {"api_key": "hush"}]}, "workers.0.api_key", "not a known key"),
        ({"workers": [TOOL | {"api_base": "https://host/v1?api_key=hush"}]}, "workers.0.api_base", "in its query"),
        ({"workers": [TOOL | {"api_base": "https://me:hush@host/v1"}]}, "workers.0.api_base", "password"),
        ({"workers": [TOOL | {"extra_body": {"extra_headers": {"X-Api-Key": "hush"}}}]}, "workers.0.extra_body",
         "extra_headers.X-Api-Key"),
        ({"workers": [TOOL | {"extra_body": {"headers": [{"Authorization": "hush"}]}}]}, "workers.0.extra_body",
         "Authorization"),
        ({"workers": [TOOL | {"tags": ["opne"]}]}, "workers.0.tags.0", "'open'"),
        ({"workers": [TOOL | {"thinking_budget": 5000}]}, "workers.0", "leaves nothing of max_tokens"),
        ({"workers": [TOOL | {"model": "anthropic/x", "thinking_budget": 1024}]}, "workers.0", "a temperature"),
        ({"variants": {"long": {"b": {"max_tokens": 9}}}}, "", "no worker b"),
        ({"variants": {"long": {"a": {"max_tokens": 0}}}}, "", "variants.long.a.max_tokens"),
        ({"variants": {"long": {"a": {"model": "local/other"}}}}, "", "may not change model"),
        *(({"workers": [TOOL | {"api_base": url}]}, "workers.0.api_base", "http://HOST:PORT/v1") for url in NO_URLS),
    ],
)
def test_an_error_in_a_pool_file_names_file_field_and_remedy(
    tmp_path: Path, change: dict[str, Any], field: str, says: str
) -> None:
    file = tmp_path / "pools" / "mine.yaml"
    file.parent.mkdir()
    file.write_text(yaml.safe_dump({"name": "mine", "workers": [TOOL]} | change), encoding="utf-8")
    with pytest.raises(ConfigError, match=says) as caught:
        load_pool(tmp_path, "mine")
    assert (caught.value.file, caught.value.field) == (str(file), field)
    assert caught.value.remedy
    assert "hush" not in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://localhost:8000/v1", "https://api.example.org", "http://[::1]:8000/v1", "HTTPS://Host.Example/v1/"]
)
def test_an_endpoint_that_is_one_is_taken(url: str) -> None:
    assert Worker(name="a", model="openai/m", api_base=url).api_base == url


@pytest.mark.parametrize("name", ["openai", "anthropic", "gemini", "deepinfra"])
def test_a_pool_of_one_key_agrees_with_litellms_table(name: str) -> None:
    made, table = load_pool(CONFIG, name), read_model_table()
    assert len({worker.api_key_env for worker in made.workers}) == 1
    assert len({worker.price for worker in made.workers}) == len(made.workers) >= 3
    for worker in made.workers:
        known = table.get(worker.model) or table[worker.model.partition("/")[2]]
        assert worker.price is not None
        listed = read_price(known, known["litellm_provider"])
        assert listed is not None
        tiers = [tier for tier in listed.tiers if tier.service_tier in (None, "priority")]
        for ours, theirs in zip([worker.price, *worker.price.tiers], [listed, *tiers], strict=True):
            for rate in ("input", "output", "cached_input", "cache_write"):
                assert getattr(ours, rate) == pytest.approx(getattr(theirs, rate)), (worker.name, rate)
            assert theirs.reasoning in (None, theirs.output), "reasoning has no rate of its own"
        assert (worker.retired and worker.retired.isoformat()) == known.get("deprecation_date")


def test_a_variant_that_does_not_exist_is_told_with_those_that_do() -> None:
    with pytest.raises(ConfigError, match=r"paper\.yaml: variants\.free: .*unconstrained") as caught:
        load_pool(CONFIG, "paper:free")
    assert caught.value.file.endswith("paper.yaml")


def test_settings_that_only_look_like_keys_are_no_keys() -> None:
    body = {"max_tokens": 5, "chat_template_kwargs": {"enable_thinking": True}, "top_key": 3, "tokenizer": "x"}
    Worker.model_validate(TOOL | {"extra_body": body | {"logit_bias": {"50256": -100}}, "api_base": "http://h/v1?v=2"})


def test_an_embedded_tool_answers_through_the_same_client(client: Any) -> None:
    worker = load_pool(CONFIG, "quickstart").worker("guesser")
    messages = [{"role": "user", "content": "2+2?\n\nSubtask: Solve the problem."}]
    first, second = (ask(client, worker, messages) for _ in range(2))
    assert first.text == second.text and first.text
    assert (first.cached, second.cached, first.latency_s) == (False, True, 0.1)
    bill = find_price(worker, "").compute_usd(first.usage)
    assert bill == pytest.approx((first.prompt_tokens * 0.05 + first.completion_tokens * 0.2) / 1e6)
    assert client.ledger.total_usd("run") == pytest.approx(bill)
    assert first.prompt_tokens <= max_prompt_tokens(worker, messages)


def test_the_difference_of_two_pools() -> None:
    old = pool(TOOL, TOOL | {"name": "gone"}, TOOL | {"name": "cheaper"}, TOOL | {"name": "tagged"})
    new = pool(
        TOOL | {"name": "tagged", "tags": ["tool"]},
        TOOL | {"temperature": 0.9, "revision": "2"},
        TOOL | {"name": "cheaper", "price": {"input": 0.5, "output": 2}},
        TOOL | {"name": "new"},
    )
    changes = compare_pools(old, new)
    assert (changes.added, changes.removed) == (("new",), ("gone",))
    assert changes.changed["a"] == {"revision": SettingChange("", "2"), "temperature": SettingChange(0.2, 0.9)}
    assert (changes.affects_answers, changes.affects_price) == (("a",), ("cheaper",))
    assert str(changes).splitlines() == [
        "+ new",
        "- gone",
        "~ a: revision: '' → '2', temperature: 0.2 → 0.9",
        "~ cheaper: price: 1 / 2 USD per million tokens → 0.5 / 2 USD per million tokens",
        "~ tagged: tags: none → tool",
    ]


IN_NO_KEY = (
    {"requests_per_minute": 9}, {"tokens_per_minute": 9}, {"connect_timeout_s": 1}, {"timeout_s": 1},
    {"breaker_failures": 9}, {"tags": ["tool"]}, {"retries": 0}, {"concurrency": 2}, {"project": "p"},
    {"organization": "o"},
)  # fmt: skip
IN_THE_ANSWERS_KEY = (
    {"temperature": 0.3}, {"max_tokens": 5}, {"reasoning_effort": "low"}, {"thinking_budget": 5},
    {"extra_body": {"a": 1}}, {"revision": "2"}, {"api_base": "http://h"}, {"api_version": "1"}, {"region": "eu"},
    {"extra_headers": {"a": "1"}},
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "covered"),
    [
        *((change, ()) for change in IN_NO_KEY),
        *((change, ("answers",)) for change in IN_THE_ANSWERS_KEY),
        ({"price": {"input": 1, "output": 3}}, ("prices",)),
    ],
    ids=str,
)
def test_each_key_covers_what_it_is_named_after(change: dict[str, Any], covered: tuple[str, ...]) -> None:
    plain, changed = pool(TOOL, TOOL | {"name": "b"}), pool(TOOL | {"name": "b"}, TOOL | change)
    assert (changed.answers_key != plain.answers_key) == ("answers" in covered)
    assert (changed.prices_key != plain.prices_key) == ("prices" in covered)
    changes = compare_pools(plain, changed)
    assert bool(changes.affects_answers) == ("answers" in covered)
    assert bool(changes.affects_price) == ("prices" in covered)


def test_the_quickstarts_answers_key_is_what_its_policies_were_made_under() -> None:
    assert load_pool(CONFIG, "quickstart").answers_key == "a8ff703a8f66"


def test_a_pool_is_shown_and_two_are_compared(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("PODIUM_ROOT", str(CONFIG.parent))
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert podium("pools", "show", "paper") == 0
    shown = capsys.readouterr().out
    assert "claude-sonnet-4" in shown and "3 / 15" in shown and "gpt-5: OPENAI_API_KEY is not set" in shown
    assert podium("pools", "list") == 0
    listed = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[1:] if line.strip()}
    assert set(listed) >= {file.stem for file in (CONFIG / "pools").glob("*.yaml")}
    assert "OPENAI_API_KEY" in listed["paper"] and "none" in listed["quickstart"]
    assert podium("pools", "diff", "paper", "paper:unconstrained") == 0
    lines = capsys.readouterr().out.splitlines()
    changed = "max_tokens: 4096 → 128000, reasoning_effort: 'minimal' → 'high', timeout_s: 300.0 → 1800.0"
    assert f"~ gpt-5: {changed}" in lines
    assert "that affects answers changed: gemini-2.5-pro, claude-sonnet-4, gpt-5" in lines[-5]
    assert podium("pools", "diff", "open", "open") == 0
    assert capsys.readouterr().out == "no difference\n"
    assert podium("pools", "show", "nowhere") == 1
    assert "does not exist" in capsys.readouterr().err


def test_a_new_pool_is_written_from_model_strings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    made = create_pool(tmp_path, "mine", ["openai/gpt-6-luna", "anthropic/claude-haiku-5-5"], None, None)
    assert load_pool(tmp_path, "mine") == made
    assert [(each.name, each.api_key_env) for each in made.workers] == [
        ("gpt-6-luna", "OPENAI_API_KEY"), ("claude-haiku-5-5", "ANTHROPIC_API_KEY"),
    ]  # fmt: skip
    assert made.worker("gpt-6-luna").temperature is None, "this model takes only its default"
    own = create_pool(tmp_path, "own", ["hosted_vllm/my-model"], "http://127.0.0.1:8001/v1", Price(input=0, output=0))
    assert (own.workers[0].api_key_env, own.workers[0].price) == (None, Price(input=0, output=0))


@pytest.mark.parametrize(("name", "model", "problem"), [
    ("mine", "no-provider", "does not begin with a provider that LiteLLM knows"),
    ("mine", "hosted_vllm/x", "LiteLLM has no price .*--price"),
    ("../mine", "openai/gpt-6-luna", "is not the name of a file there"),
])  # fmt: skip
def test_a_new_pool_that_cannot_be_is_refused_and_not_written(
    tmp_path: Path, name: str, model: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        create_pool(tmp_path, name, [model], None, None)
    assert not list(tmp_path.rglob("*.yaml"))


# ── announced prices ─────────────────────────────────────────────────────────

TODAY = datetime.now(UTC).date()
DAY = timedelta(days=2)
BEFORE, DOUBLED = {"input": 2.0, "output": 10.0}, {"input": 4.0, "output": 20.0}


def price(since: date) -> dict[str, Any]:
    return BEFORE | {"later": [{"since": since.isoformat(), **DOUBLED}]}


MILLIONS = Usage(10**6, 10**6)


def priced(cost: dict[str, Any]) -> Pool:
    return pool(TOOL | {"price": cost})


def test_the_price_of_a_day() -> None:
    dated = Price.model_validate(BEFORE | {"later": [
        {"since": "2026-12-01", **DOUBLED}, {"since": "2027-03-01", "input": 1, "output": 1},
    ]})  # fmt: skip
    days = (date(2026, 11, 30), date(2026, 12, 1), date(2027, 2, 28), date(2027, 3, 1))
    assert [dated.compute_usd(MILLIONS, day) for day in days] == [12.0, 24.0, 24.0, 2.0]
    assert Price.model_validate_json(dated.model_dump_json()) == dated


def test_today_decides_what_a_call_costs_and_what_the_prices_key_is() -> None:
    past, coming = priced(price(TODAY - DAY)), priced(price(TODAY + DAY))
    assert find_price(past.workers[0], "").compute_usd(MILLIONS) == 24.0
    assert find_price(coming.workers[0], "").compute_usd(MILLIONS) == 12.0
    assert past.prices_key == priced(DOUBLED).prices_key
    assert coming.prices_key == priced(BEFORE).prices_key
    assert coming.answers_key == priced(BEFORE).answers_key


@pytest.mark.parametrize("days", [["2026-12-01", "2026-12-01"], ["2026-12-02", "2026-12-01"]])
def test_dates_stand_in_their_order(days: list[str]) -> None:
    with pytest.raises(ValueError, match="dates must be different"):
        Price.model_validate(BEFORE | {"later": [{"since": day, **DOUBLED} for day in days]})


def test_an_announced_price_is_shown_and_compared() -> None:
    dated = priced(price(date(2030, 1, 1)))
    assert "2 / 10" in build_pool_table(dated)[1][0], "the table has one price for input and one for output"
    assert list_special_prices(dated) == ["a: 2 / 10", "a: 4 / 20 from 2030-01-01"]
    assert list_special_prices(priced(BEFORE)) == []
    assert str(compare_pools(priced(BEFORE), dated)) == (
        "~ a: price: 2 / 10 USD per million tokens → 2 / 10, 4 / 20 from 2030-01-01 USD per million tokens"
    )


def test_a_call_is_booked_at_the_price_of_its_day(loopback: Any, client: Any) -> None:
    for sample, (since, usd) in enumerate({TODAY - DAY: 140e-6, TODAY + DAY: 70e-6}.items()):
        paid = loopback.worker(name=f"w{sample}", price=price(since))
        assert ask(client, paid, sample=sample).cost_usd == pytest.approx(usd)
    assert client.ledger.total_usd("run") == pytest.approx(210e-6)


def test_the_projects_pool_states_the_price_that_is_announced() -> None:
    argon = load_pool(CONFIG, "frontier").worker("gemini-4-argon")
    assert argon.price is not None
    assert [argon.price.compute_usd(MILLIONS, date(2026, month, 30)) for month in (11, 12)] == [12.0, 24.0]
