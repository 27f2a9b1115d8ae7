"""A benchmark, a grader, a selector, a baseline, a reward term, an experiment, a provider: one file adds each."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ops.config import load_recipe
from ops.core.errors import ConfigError

ROOT = Path(__file__).parents[2]
CARRIED = ("assets", "config", "data/knowledge", "ops")

BENCHMARK = '''
"""Word problems of primary school."""
from ops.benchmarks.base import Benchmark
from ops.benchmarks.hub import HubDataset, UpstreamSplit

BENCHMARK = Benchmark(
    name="school", domain="arithmetic", grader="math", task="the problem", licence="MIT", citation="none", cautions=(),
    hub=HubDataset(
        "org/school",
        {"train": UpstreamSplit(None, "train"), "test": UpstreamSplit(None, "test")},
        ("id", "question"),
        "nowhere",
    ),
    from_hub=lambda row: row,
)
'''
GRADER = '''
"""Whether a number is as odd or even as the gold one."""
from ops.core.problem import Grade
from ops.grading.grader import Grader

def grade_answer(problem, answer):
    same = answer.isdigit() and int(answer) % 2 == int(problem.answer) % 2
    return Grade(float(same), answer, "same parity" if same else "other parity")

GRADER = Grader("parity", "Give a number.", grade_answer=grade_answer)
'''
SELECTOR = '''
"""Long questions."""
from ops.curation.selector import selector

@selector("Long questions are preferred.")
def longest(offered, places, evidence):
    chosen = sorted(offered, key=lambda problem: -len(problem.question))[:places]
    return [problem for problem in offered if problem in chosen]
'''
BASELINE = '''
"""The worker that answers for least."""
from ops.evaluation.stored_scores import select_worker_rows
from ops.evaluation.baseline import BaselineScores, computed_baseline
from ops.results.summary import summarize

@computed_baseline("cheapest worker")
def cheapest(answers):
    name = min(answers.training, key=lambda row: row.response.cost_usd).worker
    return BaselineScores(summarize(select_worker_rows(answers.evaluation, name)), name)
'''
TERM = '''
"""Tokens that the workers read and wrote."""
from ops.training.rewards.reward_term import reward_term

@reward_term("tokens")
def tokens(trace):
    return float(trace.tokens)
'''
PROVIDER = '''
"""A provider of our own."""
import litellm
from ops.core.registry import Provider

class Acme(litellm.CustomLLM):
    async def acompletion(self, model, messages, model_response, optional_params, **_):
        said = f"{model} was asked {messages[-1]['content']} at {optional_params['temperature']}"
        model_response.choices[0].message.content = said
        model_response.usage = litellm.Usage(prompt_tokens=5, completion_tokens=9, total_tokens=14)
        return model_response

PROVIDER = Provider("acme", handler=Acme)
'''
STUDY = '''
"""The last step alone."""
from ops.evaluation.study import WorkflowChange, intervention
from ops.workflow.grammar import Workflow

@intervention("The last step alone", about="only the last step is executed")
def last_step(habits):
    return [WorkflowChange("last", lambda workflow, dice: Workflow.single(workflow.steps[-1].worker))]
'''
START = """
import json, sys
from pathlib import Path
import ops
from ops.config import Setup
from ops.core.workspace import Workspace
root = Path(sys.argv[1])
assert Path(ops.__file__).is_relative_to(root)
setup = Setup.read(Workspace(root), "one")
"""
LOOK = """
import asyncio
from assets.studies import policy_studies
from assets.partitions import benchmarks
from ops.benchmarks.registry import training_benchmarks
from ops.benchmarks.problem_files import read_training_candidates
from ops.config import Worker, load_recipe
from ops.core.problem import Problem
from ops.core.response import Response
from ops.core.usage import Usage
from ops.grading import grade, worker_prompt
from ops.core.response_rows import ResponseRow
from ops.evaluation.stored_scores import select_worker_rows
from ops.evaluation.baseline import BASELINES, SoloResponses, collect_scores
from ops.evaluation.study import STUDIES
from ops.results.leaderboard import Leaderboard, build_leaderboard, build_tables
from ops.stages.curation import materialize_mix, materialize_shortlist
from ops.stages.raw_problems import materialize_raw
from ops.training.rewards.reward import build_reward_function
from ops.store import ResponseCache
from ops.spending.ledger import Ledger
from ops.workers.live_call import Account
from ops.workers.client import WorkerClient
from ops.workflow.grammar import Workflow
from ops.workflow.team import Team

for name in setup.recipe.benchmarks:
    materialize_raw(setup, name)
materialize_shortlist(setup)
mix = materialize_mix(setup)
load_recipe(setup.workspace.config, "quickstart")
offered = [p for p in read_training_candidates(setup.workspace, setup.recipe) if p.domain == "math"]
rows = [
    ResponseRow(worker, "mmlu", str(n), 0, "ok", Response("t", Usage(10, 5), usd, 1.0, "stop"), score)
    for worker, usd, scores in (("costly", 0.2, (1, 1, 0)), ("cheap", 0.1, (1, 0, 0)))
    for n, score in enumerate(scores)
]
scores = collect_scores(SoloResponses(rows, rows), setup.recipe.evaluation.baselines)
board = build_leaderboard(select_worker_rows(rows, "costly"), scores)

class Tool:
    async def complete(self, worker, messages, *, sample=0, **_):
        return Response("\\\\boxed{7}", Usage(10, 5), 0.001, 0.5, "stop")

odd = Problem("p", "school", "arithmetic", "test", "Which?", "7", "parity")
acme = Worker(name="acme", model="acme/large", temperature=0.5, price={"input": 1, "output": 2}, max_tokens=50)
client = WorkerClient(ResponseCache(root), Ledger(root / "ledger.sqlite"), Account("run", "test", 1.0))
said = asyncio.run(client.complete(acme, [{"role": "user", "content": "this"}]))
steps = []
reward = build_reward_function(
    {"math500/a": Problem("a", "math500", "math", "train", "Question?", "7", "math")},
    Team([Worker(name="knows", model="local/knows")], Tool(), setup.recipe.prompting), steps.append,
    weights=setup.recipe.grpo.reward_terms,
)
rewards = asyncio.run(reward(completions=[Workflow.single(0).render(), "no"], problem=["math500/a"] * 2, epoch=[0]))
print(json.dumps({
    "mix": [(problem.domain, len(problem.question)) for problem in mix.problems],
    "offered": [len(problem.question) for problem in offered],
    "card": mix.card,
    "partitions": benchmarks.get_partition_keys(),
    "columns": training_benchmarks(),
    "table": Leaderboard({"x": dict.fromkeys(["aime25", "school", "mmlu"])}).benchmarks,
    "all": list(BASELINES),
    "usual": list(collect_scores(SoloResponses(rows, rows))),
    **build_tables(board)["accuracy_in_percent"]._asdict(),
    "graded": [worker_prompt(odd), grade(odd, "9").score, grade(odd, "8").reason],
    "provider": [said.text, said.cost_usd],
    "rewards": rewards,
    "logged": steps[0].metrics["term/tokens"],
    "studies": list(STUDIES),
    "assets": policy_studies.partitions_def.get_partition_keys(),
}))
"""


class Checkout:
    """A copy of the code and the configuration, to which one file is added."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in CARRIED:
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", ".*_cache"))

    def recipe(self, **changes: Any) -> None:
        """Write the quickstart's recipe with these sections changed as `config/recipes/one.yaml`."""
        values = yaml.safe_load((self.root / "config/recipes/quickstart.yaml").read_text(encoding="utf-8"))
        for section, change in changes.items():
            values[section] = {**values.get(section, {}), **change}
        (self.root / "config/recipes/one.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")

    def refused(self, field: str, words: str) -> None:
        """Check that the recipe is refused without the new file, with the known names in the error."""
        with pytest.raises(ConfigError, match=words) as caught:
            load_recipe(self.root / "config", "one")
        assert caught.value.field == field

    def python(self, script: str) -> Any:
        """Return the JSON output of a separate process in which the copy is `ops`."""
        done = subprocess.run(
            [sys.executable, "-c", START + script, str(self.root)],
            capture_output=True, text=True, check=False, cwd=self.root, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout whose recipe uses all added files, and is refused if one of them is missing."""
    checkout = Checkout(tmp_path_factory.mktemp("one") / "checkout")
    for split in ("train", "test"):
        rows = [{"id": f"{split}-{i}", "question": f"{split} {i} + 1 = ?", "answer": str(i + 1)} for i in range(9)]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (checkout.root / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    return checkout


ADDED: dict[str, tuple[str, str, dict[str, Any], str, str]] = {
    "benchmark": (
        "benchmarks/catalogue/school.py", BENCHMARK,
        {"benchmarks": {"school": {"source": "file", "train_file": "train.jsonl", "test_file": "test.jsonl"}}},
        "benchmarks", "unknown benchmark school; known: aime25, bigcodebench, gpqa_diamond, live",
    ),
    "selector": (
        "curation/selectors/longest.py", SELECTOR,
        {"curation": {"per_domain": 4, "shortlist_factor": 4, "selector": "longest"}},
        "curation.selector", "unknown selector longest; known: disagreement, diversity, proxy, signal",
    ),
    "baseline": (
        "evaluation/baselines/cheapest.py", BASELINE, {"evaluation": {"baselines": ["cheapest", "oracle"]}},
        "evaluation.baselines", "unknown baseline cheapest; known: .*oracle, .*random_worker",
    ),
    "reward term": (
        "training/rewards/terms/tokens.py", TERM, {"grpo": {"reward_terms": {"tokens": -0.001}}},
        "grpo.reward_terms", "unknown reward term tokens; known: cost, latency, steps",
    ),
    "grader": ("grading/graders/parity.py", GRADER, {}, "", ""),
    "provider": ("providers/acme.py", PROVIDER, {}, "", ""),
    "study": ("evaluation/studies/last_step.py", STUDY, {}, "", ""),
}  # fmt: skip
"""Addition → its file below `ops`, the text, the recipe's sections that use it, and the error without it."""


@pytest.mark.parametrize("added", [name for name, (*_, words) in ADDED.items() if words])
def test_without_its_file_a_name_is_refused_with_those_that_there_are(checkout: Checkout, added: str) -> None:
    _, _, changes, field, words = ADDED[added]
    checkout.recipe(**changes)
    checkout.refused(field, words)


@pytest.fixture(scope="module")
def seen(checkout: Checkout) -> dict[str, Any]:
    """The results of the seven additions in a process, each from its one file."""
    changes: dict[str, Any] = {}
    for file, text, sections, *_ in ADDED.values():
        (checkout.root / "ops" / file).write_text(text, encoding="utf-8")
        changes |= sections
    checkout.recipe(**changes)
    return dict(checkout.python(LOOK))


ORACLE = ["oracle (upper bound)", "oracle (by chance)"]
COLUMNS = ["math500", "mmlu", "rlpr", "livecodebench", "school"]


@pytest.mark.long
@pytest.mark.parametrize(("what", "expected"), [
    pytest.param("columns", COLUMNS, id="a benchmark is trained on"),
    pytest.param("partitions", [*COLUMNS, "aime25", "gpqa_diamond", "bigcodebench"], id="a benchmark is a partition"),
    pytest.param("table", ["mmlu", "school", "aime25"], id="a benchmark stands in tables"),
    pytest.param("graded", ["Which?\nGive a number.", 1.0, "other parity"], id="a grader"),
    pytest.param("provider", ["large was asked this at 0.5", pytest.approx((5 + 9 * 2) / 1e6)], id="a provider"),
    pytest.param("usual", ["best worker (costly)", "random worker", *ORACLE, "cheapest worker (cheap)"],
                 id="a baseline is a usual one"),
    pytest.param("head", ["benchmark", "n", "Conductor", "cheapest worker (cheap)", *ORACLE], id="a baseline by name"),
    pytest.param("rewards", pytest.approx([1 - 0.015, 0.0]), id="a reward term is weighed"),
    pytest.param("logged", pytest.approx(-0.0075), id="a reward term is logged"),
])  # fmt: skip
def test_what_a_file_adds_is_used(seen: dict[str, Any], what: str, expected: object) -> None:
    assert seen[what] == expected


@pytest.mark.long
def test_a_benchmark_of_a_new_domain_and_a_selector_make_the_mix(seen: dict[str, Any]) -> None:
    domains = ("math", "mmlu", "rlpr", "code", "arithmetic")
    assert [domain for domain, _ in seen["mix"]] == [domain for domain in domains for _ in range(4)]
    chosen = [length for domain, length in seen["mix"] if domain == "math"]
    assert min(chosen) >= sorted(seen["offered"])[-40]  # a few of the longest may have repeated another
    assert "selector: longest" in seen["card"] and "Long questions are preferred." in seen["card"]


@pytest.mark.long
def test_a_baseline_is_known_and_scored(seen: dict[str, Any]) -> None:
    assert seen["all"][-1] == "cheapest" and {"best_single", "random_worker", "oracle"} < set(seen["all"])
    conductor, cheapest, *oracle = (str(cell)[:4] for cell in seen["rows"][0][2:])
    assert (conductor, cheapest, len(oracle)) == ("66.7", "33.3", len(ORACLE))


@pytest.mark.long
def test_an_experiment_is_an_asset(seen: dict[str, Any]) -> None:
    assert seen["studies"][-1] == "last_step"
    assert seen["assets"] == seen["studies"]
