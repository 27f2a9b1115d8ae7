"""Small evidence with known numbers: two in-domain benchmarks and a confidential OOD one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from ops.core.usage import Usage
from ops.evaluation.study import STUDIES
from ops.reports.evidence import Evidence, Experiment, Kind, RunInfo, System, make_random_worker
from ops.reports.exhibit import MadeExhibit, make_exhibits
from ops.results.leaderboard import TableData
from ops.results.outcome_rows import CallUsage, OutcomeRow

BENCHMARKS = {"math500": "math", "mmlu": "mmlu", "gpqa_diamond": "mmlu"}
N = 100
"""Number of questions of each."""


def rows(
    right: Sequence[bool], cost: float, workers: tuple[str, ...] = ("solver",), **changes: object
) -> list[OutcomeRow]:
    """Return rows with the same correct answers on every benchmark; `cost` in USD, 10 tokens per call."""
    base = OutcomeRow(
        benchmark="", problem_id="", repeat=0, domain="", correct=0, format_ok=True, failure="", status="answered",
        steps=len(workers), workers=workers, tokens=10 * len(workers), cost_usd=cost, latency_s=1.5,
        completion="SECRET COMPLETION", answer="SECRET ANSWER", unscorable=False,
        shape="single" if len(workers) == 1 else "chain", pattern=" ".join(workers),
        usage=tuple(CallUsage(name, Usage(5, 5)) for name in workers),
    )  # fmt: skip
    return [
        replace(base, benchmark=name, domain=domain, problem_id=f"SECRET-{place}", correct=int(answer), **changes)  # type: ignore[arg-type]
        for name, domain in BENCHMARKS.items()
        for place, answer in enumerate(right)
    ]


def first(count: int) -> list[bool]:
    """Return whether each question is among the first ones."""
    return [place < count for place in range(N)]


def curve(steps: int = 30) -> list[dict[str, object]]:
    """Validity, reward and diversity change; the share of correct answers among valid ones does not."""
    return [
        {
            "step": step, "reward": step / 100, "share/invalid": 0.5 if step <= 10 else 0.0, "share/right": 0.25,
            "right_if_valid": 0.5, "diversity": 4.0 - step / 10, "steps": 2.0, "zero_variance_groups": 0.1,
            "rollouts": 16,
        }
        for step in range(1, steps + 1)
    ]  # fmt: skip


def system(name: str, kind: Kind, made: list[OutcomeRow], title: str = "") -> System:
    return System.from_rows(name, title or name, kind, made, source="arXiv:0", differs="One thing.")


@pytest.fixture(scope="session")
def evidence() -> Evidence:
    """The Conductor solves 80 of 100 for 2 USD and two calls; opponents are worse and cheaper, better and costlier, or
    equal."""
    conductor = rows(first(80), 2.0, ("solver", "checker"))
    systems = {
        "conductor": system("conductor", "Conductor", conductor, "Conductor"),
        "cold_start": system("cold_start", "cold start", rows(first(79), 1.0), "cold start"),
        "worker solver": system("worker solver", "worker", rows(first(50), 1.0)),
        "worker checker": system("worker checker", "worker", rows(first(20), 0.1, ("checker",))),
        "five_context": system("five_context", "baseline", rows(first(95), 10.0, ("solver",) * 5), "5 × context"),
    }
    systems["random_worker"] = make_random_worker([systems["worker solver"], systems["worker checker"]])
    answers = {
        name: {str(place): [[float(place < 50)] * 2, [float(place < 20), float(place < 60)]] for place in range(N)}
        for name in BENCHMARKS
    }
    return Evidence(
        run=RunInfo("quickstart", 1, "quickstart-0123", "quickstart", is_synthetic=True),
        systems=systems,
        conductor_rows=conductor,
        best_worker="worker solver",
        curves={"conductor": curve()},
        worker_scores=answers,
        experiments={
            name: Experiment(entry.title, entry.about, TableData(["arm", "in-domain, %"], [["as it is", "80.0"]]))
            for name, entry in STUDIES.items()
        },
        training_experiments=("prompting_and_size",),
    )


@pytest.fixture(scope="session")
def made(evidence: Evidence) -> list[MadeExhibit]:
    """All exhibits of it."""
    return make_exhibits(evidence)
