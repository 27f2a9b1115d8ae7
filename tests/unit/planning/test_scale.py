"""The recipes for GPUs of stated sizes and for the paper's extensions beside a computation from first principles.

None of the formulas of `ops.planning` is used here: parameters are counted from the published configurations, bytes
from the stages of ZeRO (arXiv:1910.02054: 2 + 2 + 4 + 8 a parameter with Adam in mixed precision), calls and USD from
the recipes' numbers. What a plan assumes (the length of a prompt or an answer, a GPU's speed) is taken over as a
number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from statistics import fmean
from typing import NamedTuple

import pytest

from ops.config import Pool, Price, Setup, load_pool, load_recipe
from ops.core.installation import resources_folder
from ops.core.workspace import Workspace
from ops.grading.hidden_tests import hidden_tests_folder
from ops.planning.estimate import Cost, add_costs
from ops.planning.machine import Machine, parse_gpus
from ops.planning.memory import PHASES, Phase
from ops.planning.recipe_plan import RecipePlan, make_plan
from ops.planning.requirements import find_missing

CONFIG = resources_folder() / "config"
GIB = 2**30
CLOSE = 0.03
"""Tolerance of memory: the plan also counts norms, masks and logits, which are less than that here."""


class Model(NamedTuple):
    """A Qwen2.5 model, by its published configuration."""

    hidden: int
    intermediate: int
    layers: int
    kv: int
    """Total dimension of the key heads."""
    vocabulary: int
    embeddings: int
    """2 if the output layer has weights of its own."""

    @property
    def parameters(self) -> int:
        attention = 2 * self.hidden**2 + 2 * self.hidden * self.kv  # query and output; key and value
        biases = self.hidden + 2 * self.kv
        block = attention + biases + 3 * self.hidden * self.intermediate + 2 * self.hidden
        return self.embeddings * self.vocabulary * self.hidden + self.layers * block + self.hidden


QWEN_7B = Model(3584, 18944, 28, 512, 152_064, 2)
QWEN_3B = Model(2048, 11008, 36, 256, 151_936, 1)


@dataclass(frozen=True)
class Case:
    """A recipe and the engines that it states, written down a second time."""

    gpus: int
    gb: int
    model: Model = QWEN_7B
    zero: int = 3
    micro_batch: int = 4
    share: float = 0.15
    """Of each GPU's memory for vLLM."""
    spread: int = 1
    """GPUs of one vLLM."""
    sleep: bool = False
    rollouts: int = 51_200
    """Of GRPO; the further stages have 20 × 256."""
    stages: int = 1

    @property
    def machine(self) -> Machine:
        packages = frozenset({"deepspeed", "vllm"})
        return Machine(parse_gpus(f"{self.gpus}x{self.gb}"), 256.0, 600.0, has_bubblewrap=True, packages=packages)


TWO = Case(2, 80, spread=2, sleep=True)
CASES = {
    "paper-3b-1x80": Case(1, 80, QWEN_3B, share=0.2),
    "paper-2x80": TWO,
    "paper-8x80": Case(8, 80, micro_batch=8, share=0.4),
    "paper-8x141": Case(8, 141, zero=2, micro_batch=16, share=0.4),
    "paper-adaptive": replace(TWO, stages=2),
    "paper-recursive": replace(TWO, stages=2),
    "paper-baselines": TWO,
}
PRICES = {
    "gemini-4-argon": (2.0, 10.0), "claude-sonnet-5-5": (2.0, 10.0), "gpt-6.1-sol": (2.0, 10.0),
    "deepseek-v4.1-flash": (0.2, 0.5), "gemma-4-31b": (0.1, 0.4), "qwen3.8-27b-thinking": (0.4, 3.0),
    "qwen3.8-27b-direct": (0.4, 3.0),
}  # fmt: skip
"""USD per million tokens of prompt and answer, stated here so that the test depends on no price table."""
THINKING = dict.fromkeys(PRICES, 400.0) | {"deepseek-v4.1-flash": 2000.0, "gemma-4-31b": 0.0, "qwen3.8-27b-direct": 0.0}
"""Tokens of reasoning that a plan assumes at a low effort, at an unstated one and at none."""
QUESTIONS = {"math500": 100, "mmlu": 2000, "rlpr": 2000, "livecodebench": 175, "aime25": 30, "gpqa_diamond": 198,
             "bigcodebench": 148}  # fmt: skip
"""Of the published benchmarks, at most 2,000 of each."""
CHOICES = ("mmlu", "gpqa_diamond")
ANSWERS = 3 * sum(QUESTIONS.values())


@pytest.fixture(params=CASES)
def name(request: pytest.FixtureRequest) -> str:
    recipe: str = request.param
    return recipe


@pytest.fixture
def plan(name: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> RecipePlan:
    """The recipe's plan in an empty workspace on the machine that it is for, with every key."""
    root = tmp_path_factory.mktemp("empty")
    (root / "data").mkdir()
    (root / "data" / "few_shots").symlink_to(resources_folder() / "data" / "few_shots")
    (root / "config").symlink_to(CONFIG)
    monkeypatch.setenv("HF_HOME", str(root / "hub"))
    monkeypatch.setenv("HF_TOKEN", "of a test")
    recipe = load_recipe(CONFIG, name)
    pool = load_pool(CONFIG, recipe.pool)
    for worker in pool.workers:
        monkeypatch.setenv(str(worker.api_key_env), "of-a-test")
    priced = tuple(
        worker.model_copy(update={"price": Price(input=PRICES[worker.name][0], output=PRICES[worker.name][1])})
        for worker in pool.workers
    )
    setup = Setup(Workspace(root), recipe, Pool(name=pool.name, workers=priced))
    return make_plan(setup, CASES[name].machine, today=date(2026, 11, 25))


def test_a_recipe_is_ready_on_its_machine_once_the_keys_are_set(plan: RecipePlan) -> None:
    assert [str(each) for each in find_missing(plan)] == []


def test_the_memory_of_a_gpu(name: str, plan: RecipePlan) -> None:
    case, made = CASES[name], plan.memory
    assert made is not None
    longest = [(plan.lengths.longest_prompt, case.micro_batch)]
    if name == "paper-recursive":
        longest.append((plan.lengths.longest_round_prompt, 2))
    peaks = [by_hand(case, prompt + 1024, micro_batch) for prompt, micro_batch in longest]
    peak = max(peaks, key=lambda phases: max(phases.values()))
    assert {phase: made.phase_gib(phase) for phase in PHASES} == pytest.approx(peak, rel=CLOSE)
    assert max(peak.values()) < case.gb * 0.99


def by_hand(case: Case, sequence: int, micro_batch: int) -> dict[Phase, float]:
    """GiB of a GPU by phase."""
    model, ranks = case.model, case.gpus
    parameters, tokens = model.parameters, micro_batch * sequence
    held = parameters / ranks
    weights = 2 * (held if case.zero == 3 else parameters)
    states = weights + (2 + 4 + 8) * held
    # A bucket of 500 million gradients, which ZeRO-3 keeps and ZeRO-2 has twice in a backward pass; at most a billion
    # weights are gathered (DeepSpeed's defaults), and one rank has them all.
    gathered = 2 * min(1e9, parameters) if ranks > 1 else 0.0
    kept, passing = (2 * 5e8, gathered) if case.zero == 3 else (0.0, 2 * 2 * 5e8)
    vllm, graphs = case.share * case.gb * 0.99 * GIB, 1.5 * GIB
    awake = graphs if case.sleep else vllm
    # Every block's input; then one block again: of each of two norms an input, a float32 copy and an output, query,
    # key, value and attention, four widths of the MLP and the gradients of two.
    inputs = tokens * model.layers * 2 * model.hidden
    block = tokens * (16 * model.hidden + 4 * 2 * model.hidden + 4 * 2 * model.intermediate)
    mask = micro_batch * sequence**2 * 2
    gradients = tokens * 2 * 2 * model.intermediate
    if model.embeddings == 1:  # the head's, which waits for the embedding's
        gradients += 2 * model.vocabulary * model.hidden
    last = tokens * 6 * model.hidden + micro_batch * 1024 * 2 * model.hidden
    # A float32 gradient and Adam's temporary: of a billion weights at a time (ZeRO-3's sub-groups), or of all.
    step = 8 * (min(1e9, held) if case.zero == 3 else held)
    embedding = 2 * 2 * model.vocabulary * model.hidden if case.zero == 3 else 0
    always = states + kept + 1.8 * GIB  # a CUDA context and NCCL
    peaks: dict[Phase, float] = {
        "writing": always + vllm + embedding,
        "updating": always + awake + passing + inputs + block + mask + gradients + last,
        "stepping": always + awake + step,
    }
    return {phase: peak / GIB for phase, peak in peaks.items()}


def test_the_cache_of_vllm(name: str, plan: RecipePlan) -> None:
    case, made = CASES[name], plan.memory
    assert made is not None and made.kv_tokens is not None
    model, gpu = case.model, case.gb * 0.99 * GIB
    room = case.spread * (case.share * gpu - 2 * model.parameters / case.spread - 1.5 * GIB)
    a_token = 2 * 2 * model.layers * model.kv  # a key and a value of two bytes
    assert made.kv_tokens == pytest.approx(room / a_token, rel=1e-3)
    assert made.kv_tokens > 8192 + 1024


def test_host_memory_and_disk(name: str, plan: RecipePlan) -> None:
    """Every rank reads the whole model; a checkpoint holds weights twice (shards, whole) and master and Adam's two."""
    case, made = CASES[name], plan.memory
    assert made is not None
    weights = 2 * case.model.parameters / GIB
    assert made.host_peak_gib == pytest.approx(case.gpus * (weights + 2.0))
    checkpoint = (2 + 2 + 4 + 8) * case.model.parameters / GIB
    # LiveCodeBench's hidden tests, 12 GB of text in two thirds of the bytes, and DVC's copy.
    tests = 2 * 12e9 * 2 / 3 / GIB
    # Each stage keeps one; each stage's policy, MLflow's copy of the last and the model from the hub.
    assert plan.disk_gib == pytest.approx((case.stages + 1) * checkpoint + (case.stages + 2) * weights + tests)
    # Twenty million characters four times for each program that is graded, in no rank.
    assert plan.grading_gib == pytest.approx(plan.machine.cores * 20e6 * 4 / GIB)


def test_hidden_tests_that_are_stored_take_no_more_disk(plan: RecipePlan) -> None:
    before = plan.disk_gib
    folder = hidden_tests_folder(plan.setup.workspace.root) / "livecodebench"
    folder.mkdir(parents=True)
    (folder / "a.zip").write_bytes(b"")
    stored = make_plan(plan.setup, plan.machine, today=plan.today)
    assert (stored.hidden_tests_gib, stored.hidden_tests) == (0.0, ["livecodebench"])
    assert stored.disk_gib == pytest.approx(before - plan.hidden_tests_gib)


def test_calls(name: str, plan: RecipePlan) -> None:
    expected = {
        "precaching": 2 * 960 * 7,
        "training": 3 * 51_200,
        "every worker alone": 7 * ANSWERS,
        "evaluation": 3 * ANSWERS,
    }
    if name == "paper-adaptive":
        expected["training on subsets"] = 3 * 20 * 256
    if name == "paper-recursive":
        # Half of the rollouts follow another one, and half of these keep its answer; so do those of the evaluation.
        expected["training in rounds"] = 3 * 20 * (128 + 64)
        expected["evaluation"] = 3 * 1.5 * ANSWERS
    if name == "paper-baselines":
        del expected["every worker alone"]
        # Every worker alone, whose answers RouterDC and both of Smoothie choose from; reflection, context, consensus,
        # Mixture-of-Agents, MasRouter (and what it learns from), and a prompted Conductor.
        expected["baselines"] = (7 + 5 + 5 + 5 + 8 + 5 + 6) * ANSWERS + 8000
    assert {stage.name: stage.calls.expected for stage in plan.stages} == pytest.approx(expected)


def test_usd(name: str, plan: RecipePlan) -> None:
    """A workflow has three steps, each of which sees half of those before it."""
    costs = by_name(plan)
    of_training = {"math500": 0.25, "mmlu": 0.25, "rlpr": 0.25, "livecodebench": 0.25}
    asked = {benchmark: count / sum(QUESTIONS.values()) for benchmark, count in QUESTIONS.items()}
    assert costs["precaching"].usd.expected == pytest.approx(1920 * 7 * usd_of_call(of_training))
    assert costs["training"].usd.expected == pytest.approx(51_200 * 3 * usd_of_call(of_training, seen=1.0))
    if name != "paper-baselines":
        assert costs["every worker alone"].usd.expected == pytest.approx(7 * ANSWERS * usd_of_call(asked))
    if name == "paper-adaptive":
        usd = costs["training on subsets"].usd.expected
        assert usd == pytest.approx(20 * 256 * 3 * usd_of_call(of_training, seen=1.0))
    if name == "paper-recursive":
        first, again = (usd_of_call(of_training, seen=seen) for seen in (1.0, 2.0))
        assert costs["training in rounds"].usd.expected == pytest.approx(20 * 3 * (128 * first + 64 * again))
    else:
        assert costs["evaluation"].usd.expected == pytest.approx(3 * ANSWERS * usd_of_call(asked, seen=1.0))
    assert add_costs(plan.stages).usd.expected <= plan.recipe.budget.run_usd


def usd_of_call(shares: Mapping[str, float], seen: float | None = None) -> float:
    """Mean USD of a call to any of the workers. `seen`: earlier answers before a step on average; None: no subtask."""
    costs = []
    for benchmark, share in shares.items():
        text = 300 if benchmark in CHOICES else 830
        answers = {worker: text + thinking for worker, thinking in THINKING.items()}
        more = 0.0 if seen is None else 25 + seen / 2 * (fmean(answers.values()) + 25)
        prompt = 150 + 20 + more
        each = [(prompt * PRICES[name][0] + answer * PRICES[name][1]) / 1e6 for name, answer in answers.items()]
        costs.append(share * fmean(each))
    return sum(costs)


def by_name(plan: RecipePlan) -> dict[str, Cost]:
    return {stage.name: stage for stage in plan.stages}


def test_hours(name: str, plan: RecipePlan) -> None:
    """Eight operations a parameter and token with checkpointing, at a quarter of 989 TFLOPS a GPU; a model of 7.6
    billion parameters writes 2,500 tokens a second on a GPU, and 35% of a completion's 1,024."""
    case, costs = CASES[name], by_name(plan)
    parameters, said = case.model.parameters, 0.35 * 1024
    a_second = case.gpus * 2500 * 7.6e9 / parameters

    def training_s(rollouts: int, prompt: float) -> float:
        operations = rollouts * (prompt + said) * 8 * parameters
        return operations / (0.25 * 989e12 * case.gpus) + rollouts * said / a_second

    expected = {"training": training_s(51_200, plan.lengths.prompt), "evaluation": ANSWERS * said / a_second}
    if name == "paper-adaptive":
        expected["training on subsets"] = training_s(5120, plan.lengths.prompt)
    if name == "paper-recursive":
        half = (plan.lengths.prompt + plan.lengths.round_prompt) / 2
        expected["training in rounds"] = training_s(5120, half)
        expected["evaluation"] *= 2  # each answer is read once more
    hours = {stage: cost.policy_s.expected for stage, cost in costs.items() if cost.policy_s is not None}
    assert hours == pytest.approx(expected, rel=1e-6)
