"""Baselines that call embedded workers: stored, called once, and again only after a relevant change."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from ops.benchmarks.problem_files import read_evaluation_questions, read_problems, write_problems
from ops.config import Setup
from ops.core.errors import DataError
from ops.core.installation import resources_folder
from ops.core.workspace import Workspace
from ops.evaluation.baseline import BASELINES, WorkflowBaseline
from ops.evaluation.stored_baselines import list_baseline_stores
from ops.evaluation.stored_scores import read_solo_responses
from ops.precaching.client_setup import open_client
from ops.results.outcome_rows import OutcomeRow
from ops.results.table import iterate_records
from ops.stages.curation import materialize_mix
from ops.stages.evaluation import score_baselines
from ops.stages.responses import answer_evaluation_questions, materialize_responses
from tests.integration.checkouts import UNTRAINED, configure, shortlisted, sizes

ASKING = ("five_consensus", "solve_then_check", "prompted_conductor")
RECIPE: dict[str, Any] = UNTRAINED | {
    "name": "small",
    "pool": "few",
    "benchmarks": sizes(8, 2, ("math500", "mmlu", "rlpr")),
    "curation": {"per_domain": 2, "near_duplicate_jaccard": 1.0},
    "evaluation": {"baselines": ["oracle", *ASKING]},
}
QUESTIONS = 2 * len(RECIPE["benchmarks"])
CALLS = QUESTIONS * (5 + 2 + 1)


class Checkout:
    """A checkout with the workers' responses to the mix."""

    def __init__(self, workspace: Workspace, workers: tuple[str, ...] = ("solver", "librarian")) -> None:
        self.workspace, self.workers = workspace, workers
        self.write()
        setup = self.setup()
        shortlisted(setup)
        materialize_responses(setup, open_client(setup, "precaching"))
        materialize_mix(setup)

    def write(self, usd: float = 1.0, temperature: float = 0.7, **recipe: Any) -> None:
        """Write the pool: a worker that answers everything, and one that is never best."""
        workers = [
            {"name": name, "model": f"local/{name}", "price": {"input": usd, "output": usd}, "latency_s": 0.1,
             "max_tokens": 200, "temperature": temperature} for name in self.workers
        ]  # fmt: skip
        pool = {"name": "few", "workers": workers}
        configure(self.workspace, {"pools/few": pool, "recipes/small": RECIPE | recipe})

    def setup(self) -> Setup:
        return Setup.read(self.workspace, "small")

    def score(self) -> tuple[dict[str, list[OutcomeRow]], int]:
        """Return baseline → rows, and the number of calls including cached ones."""
        setup = self.setup()
        client = open_client(setup, "baselines")
        rows = score_baselines(setup, client, list(setup.recipe.benchmarks))
        return {
            name: list(iterate_records(own)) for name, own in rows.items()
        }, client.counts.live + client.counts.cached


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("config", "data/few_shots", "data/knowledge"):
        shutil.copytree(resources_folder() / folder, tmp_path / folder)
    return tmp_path


@pytest.fixture
def checkout(root: Path) -> Checkout:
    return Checkout(Workspace(root))


def test_baselines_of_the_workers_own_answers_cost_nothing_where_every_worker_is_asked(root: Path) -> None:
    own = [
        entry.name for entry in BASELINES.values() if isinstance(entry, WorkflowBaseline) and entry.uses_solo_responses
    ]
    assert {"consensus", "router_dc", "smoothie", "smoothie_dependent"} <= set(own)
    checkout = Checkout(Workspace(root), ("solver", "librarian", "guesser"))
    checkout.write(evaluation={"baselines": ["each_worker", *own], "repeats": 2})
    setup = checkout.setup()
    client = open_client(setup, "baseline")
    answer_evaluation_questions(setup, client, list(setup.recipe.benchmarks))
    alone = client.counts.live
    assert alone == QUESTIONS * 2 * 3
    rows = score_baselines(setup, client, list(setup.recipe.benchmarks))
    assert {name: len(list(iterate_records(own_rows))) for name, own_rows in rows.items()} == dict.fromkeys(
        own, QUESTIONS * 2
    )
    assert client.counts.live == alone


@pytest.mark.parametrize(("baselines", "asked"), [
    (None, {"solver", "librarian"}), (["oracle"], {"solver", "librarian"}),
    (["best_single", "five_consensus"], {"solver"}), ([], {"solver"}),
])  # fmt: skip
def test_workers_are_asked_alone_only_where_a_baseline_or_the_gate_needs_them(
    checkout: Checkout, baselines: list[str] | None, asked: set[str]
) -> None:
    checkout.write(evaluation={"baselines": baselines} if baselines is not None else {})
    setup = checkout.setup()
    client = open_client(setup, "baseline")
    rows = answer_evaluation_questions(setup, client, list(setup.recipe.benchmarks))
    assert {cell.worker for cell in rows} == asked
    assert client.counts.live == QUESTIONS * len(asked)


def test_workers_and_baselines_have_their_own_repeats(checkout: Checkout) -> None:
    own = {**RECIPE["evaluation"], "repeats": 3, "benchmarks": {"mmlu": {"repeats": 2}}}
    checkout.write(evaluation={**own, "workers": {"repeats": 1}})
    setup = checkout.setup()
    client = open_client(setup, "baseline")
    answered = answer_evaluation_questions(setup, client, list(setup.recipe.benchmarks))
    assert {row.sample for rows in answered.values() for row in rows} == {0}
    assert client.counts.live == QUESTIONS * 2
    assert len(read_solo_responses(setup, setup.pool.names)) == QUESTIONS * 2
    scored, asked = checkout.score()
    assert asked == CALLS
    assert {row.repeat for rows in scored.values() for row in rows} == {0}
    checkout.write(evaluation=own)
    with pytest.raises(DataError, match="Materialize baselines"):
        read_solo_responses(checkout.setup(), setup.pool.names)
    scored, _ = checkout.score()
    assert {(row.benchmark, row.repeat) for row in scored["five_consensus"]} == {
        (name, repeat) for name in RECIPE["benchmarks"] for repeat in range(2 if name == "mmlu" else 3)
    }


def test_they_are_scored_once_and_again_only_when_something_else_is_asked(checkout: Checkout) -> None:
    scored, asked = checkout.score()
    assert (tuple(scored), asked) == (ASKING, CALLS)
    for name, rows in scored.items():
        assert len(rows) == QUESTIONS and not any(row.unscorable for row in rows), name
        assert all(row.cost_usd > 0 and row.usage for row in rows)
    assert {row.workers for row in scored["solve_then_check"]} == {("solver", "solver")}
    assert any(row.correct for row in scored["five_consensus"])
    written = scored["prompted_conductor"]
    assert not any(row.format_ok or row.correct for row in written), "no embedded worker can write a workflow"

    questions = read_evaluation_questions(checkout.workspace, checkout.setup().recipe)
    heads = [
        store.read_scores(questions).column_heading(store.entry.title)
        for store in list_baseline_stores(checkout.setup())
    ]
    assert heads == ["5 × consensus (solver)", "solve, then check (solver)", "prompted conductor (solver, 0% valid)"]

    assert checkout.score() == (scored, 0), "nothing is asked a second time"
    checkout.write(usd=10.0)
    costlier, asked = checkout.score()
    assert asked == 0, "another price changes costs alone"
    assert [row.cost_usd for row in costlier["five_consensus"]] == pytest.approx(
        [10 * row.cost_usd for row in scored["five_consensus"]]
    )

    checkout.write(temperature=0.2)
    assert checkout.score()[1] == CALLS, "another pool"
    checkout.write()
    assert checkout.score()[1] == 0, "what was scored of the pool before is still there"

    mix = checkout.workspace.data / "training_mix.jsonl"
    whole = read_problems(mix)
    write_problems(mix, whole[:-1])
    assert checkout.score()[1] == CALLS, "another mix"
