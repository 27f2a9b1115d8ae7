"""From `podium init --pool` to the first table and a served answer, with providers simulated on loopback.

The shipped pools and recipes are used; only the benchmarks' source is replaced, since there is no hub here. A provider
counts calls and USD by itself. The small run of `make test` asks generated questions; the soak test asks every
provider real rows, where they are present.
"""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from ops.benchmarks.registry import BENCHMARKS
from ops.config import Serving, load_recipe
from ops.core.problem import Problem, Split
from ops.core.workspace import Workspace
from ops.release import registry
from ops.release.champion import open_registered_versions
from ops.serving.in_thread import EngineThread
from ops.serving.request_options import RequestOptions, make_problem
from ops.spending.ledger import Ledger
from ops.synthetic.problems import generate_problems
from tests.faults.provider_errors import SENT, Sent
from tests.integration.checkouts import command, configure
from tests.providers import KEY, VARIABLES, Kind, Provider

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROWS = Path(__file__).resolve().parents[3] / "shared" / "benchmarks"
REFUSALS = {sent.name: sent for sent in SENT}
HARD = 30
"""Rows of the fourth benchmark."""
Rows = Mapping[tuple[str, Split], Sequence[Mapping[str, Any]]]


def generated() -> Rows:
    """Rows of the four benchmarks in the format of a file, from the generated problems."""
    made: dict[tuple[str, Split], list[Mapping[str, Any]]] = {}
    for name in ("math500", "mmlu", "rlpr", "aime25"):
        for split in BENCHMARKS[name].splits:
            made[name, split] = [
                {"id": each.id, "question": each.question, "answer": each.answer, "choices": list(each.choices) or None}
                for each in generate_problems(name, split, 40, seed=3)
            ]
    return made


def real() -> Rows:
    """Rows of `../shared/benchmarks`; hard problems of MATH with integer answers take AIME's place."""

    def read(file: str) -> list[Mapping[str, Any]]:
        with gzip.open(ROWS / f"{file}.jsonl.gz", "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    trained = [row for row in read("math_train") if row["answer"]]
    hard = [row for row in trained if row["level"] == "Level 5" and re.fullmatch(r"\d{1,3}", row["answer"])]
    return {
        ("math500", "train"): trained[:400], ("math500", "test"): read("math500"),
        ("mmlu", "train"): read("mmlu_val"), ("mmlu", "test"): read("mmlu_test_part"),
        ("rlpr", "train"): read("webinstruct_train"), ("rlpr", "test"): read("webinstruct_test"),
        ("aime25", "test"): hard[-HARD:],
    }  # fmt: skip


class Place(NamedTuple):
    """A new workspace whose benchmarks come from files, and the questions of these files."""

    workspace: Workspace
    problems: list[Problem]


def laid_out(root: Path, rows: Rows, **changes: Any) -> Place:
    """Lay out a workspace whose shipped `first-look` reads the rows from files."""
    assert command(root, "init", str(root))[0] == 0
    return read_from_files(Workspace(root), rows, **changes)


def read_from_files(workspace: Workspace, rows: Rows, **changes: Any) -> Place:
    """Let the workspace's `first-look` read the rows from files."""
    root = workspace.root
    (root / "benchmarks").mkdir()
    recipe = yaml.safe_load((workspace.config / "recipes" / "first-look.yaml").read_text(encoding="utf-8")) | changes
    sources: dict[str, dict[str, Any]] = {}
    for (name, split), own in rows.items():
        file = f"benchmarks/{name}-{split}.jsonl"
        (root / file).write_text("".join(f"{json.dumps(row)}\n" for row in own), encoding="utf-8")
        kept = {key: value for key, value in recipe["benchmarks"][name].items() if key in ("train", "test")}
        sources.setdefault(name, {"source": "file", **kept})[f"{split}_file"] = file
    configure(workspace, {"recipes/first-look": recipe | {"benchmarks": sources}})
    whole = {"train": None, "test": None}
    problems = [
        problem
        for name, source in load_recipe(workspace.config, "first-look").benchmarks.items()
        for split in BENCHMARKS[name].splits
        for problem in BENCHMARKS[name].load(split, source.model_copy(update=whole), workspace, 0).problems
    ]
    return Place(workspace, problems)


SMALL = {
    "curation": {"per_domain": 3, "selector": "uniform", "near_duplicate_jaccard": 1.0},
    "evaluation": {"questions": 3, "baselines": ["each_worker", "oracle", "consensus", "static_vote", "knn_router"]},
}
"""Three questions a benchmark; generated questions of a family differ in little but their numbers."""
TEXT = "Ana is taller than Bo, and Bo is taller than Chen. Who is the tallest?"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No provider's variable is set, no token of the hub, and no terminal can be asked."""
    for names in VARIABLES.values():
        for name in names[:2]:
            monkeypatch.setenv(name, "x")  # what a command sets is removed afterwards
            monkeypatch.delenv(name)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    return monkeypatch


def called(provider: Provider, environment: pytest.MonkeyPatch, workspace: Workspace, *, key: str | None = KEY) -> None:
    """Let this process's commands reach the provider, with that key."""
    variable, address, _ = VARIABLES[provider.kind]
    if provider.kind == "ollama":  # this pool names its server
        file = workspace.config / "pools" / "ollama.yaml"
        text = re.sub(r"(api_base: ).*", rf"\g<1>{provider.environment[address]}", file.read_text(encoding="utf-8"))
        file.write_text(text, encoding="utf-8")
        return
    environment.setenv(address, provider.environment[address])
    if key is not None:
        environment.setenv(variable, key)


def served(workspace: Workspace) -> str:
    """Promote version 1 if the gate kept it back, and ask it: the answer."""
    if registry.find_champion(workspace) is None:
        assert command(workspace.root, "promote", "1", "--by", "me", "--reason", "a first look")[0] == 0
    with open_registered_versions(workspace) as source:
        engine = EngineThread.from_files(source.fetch_files(source.find_current() or ""), workspace, Serving())
        with closing(engine):
            return engine.answer_question(make_problem(TEXT, RequestOptions()), RequestOptions()).text or ""


def test_from_a_key_to_a_table_a_page_and_an_answer(tmp_path: Path, environment: pytest.MonkeyPatch) -> None:
    place = laid_out(tmp_path / "work", generated(), **SMALL)
    workspace = place.workspace
    with Provider("openai", place.problems, latency_s=0.01) as provider:
        called(provider, environment, workspace, key=None)
        environment.setattr("sys.stdin.isatty", lambda: True, raising=False)
        environment.setattr("click.prompt", lambda text, **options: KEY if options["hide_input"] else "")
        environment.setattr("click.confirm", lambda text, **_: True)
        status, printed = command(workspace.root, "init", str(workspace.root), "--pool", "openai")
        assert status == 0, printed
        spent = _spent(workspace)
        assert spent == pytest.approx(provider.bill.usd), "what the provider bills is in the ledger"
        assert provider.bill.calls.total() <= 3 + (9 + 12) * 3 + 2 * 12 * 2, "a call to each, answers, workflows"
        assert served(workspace)
        assert spent < _spent(workspace) == pytest.approx(provider.bill.usd)
    _said_in_order(
        printed,
        "recipe config/recipes/first-look-openai.yaml, pool config/pools/openai.yaml",
        "never more than $3.00",
        "Each worker answers: gpt-6.1-sol, gpt-5.6-luna, gpt-6-luna.",
        "worker_responses",
        "alone (gpt-6.1-sol)", "consensus", "best static vote", "kNN router",
        "Equal price",
        "Page        .podium/reports/first-look-openai-",
        "podium plan pilot --pool openai",
    )  # fmt: skip
    [page] = re.findall(r"Page +(\S+)", printed)
    assert (workspace.root / page).is_file()
    assert f"OPENAI_API_KEY={KEY}" in workspace.environment_file.read_text(encoding="utf-8").splitlines()
    assert workspace.environment_file.stat().st_mode & 0o777 == 0o600
    assert ".env" in (workspace.root / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert KEY not in printed


def _spent(workspace: Workspace) -> float:
    with closing(Ledger(workspace.ledger)) as ledger:
        return sum(spent.usd for spent in ledger.by_run().values())


def _said_in_order(printed: str, *parts: str) -> None:
    place = 0
    for part in parts:
        assert part in printed[place:], (part, printed)
        place = printed.index(part, place)


class Stop(NamedTuple):
    """What stops a first look, and the line about it."""

    kind: Kind
    refuses: Mapping[str, Sent]
    key: str
    says: str
    remedy: str
    workers: str


def _stops() -> Iterator[Stop]:
    every: dict[Kind, tuple[str, str, str]] = {  # error replies about balance and region ("": none is known), a model
        "openai": ("openai quota", "openai region", "gpt-6-luna"),
        "anthropic": ("anthropic credit", "anthropic region", "claude-haiku-5-5"),
        "gemini": ("google no billing", "google region", "gemini-3.1-flash-lite"),
        "deepinfra": ("deepinfra balance", "", "glm-4.7-flash"),
    }
    for kind, (broke, region, model) in every.items():
        variable = VARIABLES[kind][0]
        yield Stop(kind, {}, "another-key", f"refused the key in {variable}", "Check that the key is right", "")
        yield Stop(kind, {"": REFUSALS[broke]}, KEY, "its account cannot be used", "Check credit, billing", "")
        if region:
            remedy = "take another provider's pool"
            yield Stop(kind, {"": REFUSALS[region]}, KEY, "does not serve the place", remedy, "")
        asked = "zai-org/GLM-4.7-Flash" if kind == "deepinfra" else model
        yield Stop(kind, {asked: REFUSALS["model"]}, KEY, "does not serve", "Check model and api_base", model)
    missing = {"gemma3:4b": REFUSALS["ollama model"]}
    yield Stop("ollama", missing, "", "does not serve", "Check model and api_base", "gemma3-4b")


@pytest.mark.parametrize("stop", list(_stops()), ids=lambda stop: f"{stop.kind}: {stop.says}")
def test_each_stop_is_one_line_with_a_remedy_and_nothing_is_spent(
    stop: Stop, stopped: Workspace, environment: pytest.MonkeyPatch
) -> None:
    with Provider(stop.kind, [], latency_s=0.0) as provider:
        provider.refuses = dict(stop.refuses)
        called(provider, environment, stopped, key=stop.key)
        agreed = ("--without", "claude-opus-5-5") if stop.kind == "anthropic" else ()
        status, printed = command(stopped.root, "init", str(stopped.root), "--pool", stop.kind, "--yes", *agreed)
    assert status == 1
    *_, line, last = printed.splitlines()
    assert stop.says in line and stop.remedy in line
    assert line.startswith(f"{stop.workers}: " if stop.workers else "")
    assert last == "No other call was made. The same command continues from here."
    assert "Traceback" not in printed and (not stop.key or stop.key not in printed)
    assert provider.bill.usd < 0.01


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return laid_out(tmp_path_factory.mktemp("stopped") / "work", generated()).workspace


def test_a_missing_key_is_one_line_and_env_has_a_place_for_it(
    stopped: Workspace, environment: pytest.MonkeyPatch
) -> None:
    stopped.environment_file.unlink(missing_ok=True)
    status, printed = command(stopped.root, "init", str(stopped.root), "--pool", "gemini", "--yes")
    assert status == 1
    assert f"error: {stopped.environment_file}: GEMINI_API_KEY: is not set. Write GEMINI_API_KEY=KEY there" in printed
    assert "GEMINI_API_KEY=" in stopped.environment_file.read_text(encoding="utf-8").splitlines()
    stopped.environment_file.write_text(f"GEMINI_API_KEY={KEY}\nOTHER=1\n", encoding="utf-8")
    environment.setattr("sys.stdin.isatty", lambda: True, raising=False)
    environment.setattr("click.confirm", lambda text, **_: False)
    status, printed = command(stopped.root, "init", str(stopped.root), "--pool", "gemini")
    assert status == 1
    assert printed.endswith("Nothing was spent. `podium run first-look-gemini` runs it later.\n")
    assert stopped.environment_file.read_text(encoding="utf-8") == f"GEMINI_API_KEY={KEY}\nOTHER=1\n"


def test_the_hub_is_asked_before_a_worker_is_paid(tmp_path: Path, environment: pytest.MonkeyPatch) -> None:
    workspace = laid_out(tmp_path / "work", generated()).workspace
    file = workspace.config / "recipes" / "first-look.yaml"
    recipe = yaml.safe_load(file.read_text(encoding="utf-8"))
    recipe["benchmarks"]["math500"] = {"source": "hub", "revision": "a" * 40, "test": 3}
    configure(workspace, {"recipes/first-look": recipe})
    environment.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    environment.setattr("datasets.config.HF_HUB_OFFLINE", True)
    with Provider("openai", [], latency_s=0.0) as provider:
        called(provider, environment, workspace)
        status, printed = command(workspace.root, "init", str(workspace.root), "--pool", "openai", "--yes")
    assert status == 1 and "hub dataset " in printed.splitlines()[-1] and "Traceback" not in printed
    assert provider.bill.calls.total() == 0


def test_a_pool_without_a_price_asks_for_no_agreement_and_names_its_absent_server(
    stopped: Workspace, environment: pytest.MonkeyPatch
) -> None:
    with Provider("ollama", []) as provider:
        called(provider, environment, stopped)
    address = provider.environment["OLLAMA_API_BASE"]  # of a server that has ended
    status, printed = command(stopped.root, "init", str(stopped.root), "--pool", "ollama")
    assert status == 1
    assert "paid workers" not in printed
    *_, line, last = printed.splitlines()
    assert line.startswith("qwen3-8b, gemma3-4b, llama3.2-3b: ")
    assert "nothing listens at" in line and "Start the server" in line
    assert address.partition("://")[2] in line
    assert last == "No other call was made. The same command continues from here."


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["openai", "anthropic", "gemini"])  # the others speak as OpenAI does
def test_a_first_look_at_each_provider_on_real_rows(
    kind: Kind, tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    if not ROWS.is_dir():
        pytest.skip(f"no real benchmark rows at {ROWS}")
    place = laid_out(tmp_path / "work", real())
    with Provider(kind, place.problems) as provider:
        called(provider, environment, place.workspace)
        status, printed = command(place.workspace.root, "init", str(place.workspace.root), "--pool", kind, "--yes")
        assert status == 0, printed
        assert served(place.workspace)
        assert _spent(place.workspace) == pytest.approx(provider.bill.usd)
        assert provider.bill.usd < 3
