"""The figures of a leaderboard from its rows: 7 systems × 7
benchmarks × 10,000 rows, beside pandas on the same rows.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median

import pandas as pd

from ops.evaluation.rows import OutcomeRow, Usage
from ops.evaluation.runner import summarize
from ops.evaluation.statistics import contrasts, question_means
from tests.bench.row import Row, sized

SYSTEMS, BENCHMARKS, QUESTIONS, REPEATS = 7, 7, sized(2500, 50), 4
TURNS = 3
BY_PANDAS = "a frame of them grouped by pandas"
COLUMNS = ("benchmark", "problem_id", "correct", "unscorable", "tokens", "cost_usd", "latency_s", "steps", "format_ok")
Systems = Mapping[str, Sequence[OutcomeRow]]


def rows() -> list[Row]:
    """Measure means with their errors, without and with every comparison; CPU time of the median turn."""
    systems = _systems()
    ours, reference = summarize(systems["system 0"])["benchmark 0"].accuracy, _grouped(systems)
    assert abs(ours.standard_error - reference.loc[("system 0", "benchmark 0"), "sem"]) < 1e-9, "the same numbers"
    ways: tuple[Callable[[Systems], object], ...] = (_summarized, _compared, _grouped)
    taken = [[_cpu_s(way, systems) for way in ways] for _ in range(TURNS)]
    summarized, compared, grouped = (median(times) for times in zip(*taken, strict=True))
    what = f"{SYSTEMS} systems × {BENCHMARKS} benchmarks × {QUESTIONS * REPEATS:,} rows"
    return [
        Row(f"{what}, summarised", summarized, BY_PANDAS, grouped, 1.5, "CPU s"),
        Row(f"{what}, summarised and compared", summarized + compared, BY_PANDAS, grouped, 8.0, "CPU s"),
    ]


def _cpu_s(way: Callable[[Systems], object], systems: Systems) -> float:
    started = time.process_time()
    way(systems)
    return time.process_time() - started


def _summarized(systems: Systems) -> object:
    return {name: summarize(own) for name, own in systems.items()}


def _compared(systems: Systems) -> object:
    return contrasts({name: question_means(own) for name, own in systems.items()}, "system 0")


def _grouped(systems: Systems) -> pd.DataFrame:
    """Compute the same means and standard errors over questions with pandas: the reference."""
    records = [(name, *(getattr(row, column) for column in COLUMNS)) for name, own in systems.items() for row in own]
    frame = pd.DataFrame(records, columns=["system", *COLUMNS])
    scored, groups = frame[~frame["unscorable"]], ["system", "benchmark"]
    accuracy = scored.groupby([*groups, "problem_id"])["correct"].mean().groupby(groups).agg(["mean", "sem", "size"])
    usage = scored.groupby(groups)[["tokens", "cost_usd", "latency_s", "steps"]].mean()
    return accuracy.join(usage).join(frame.groupby(groups)["format_ok"].mean())


def _systems() -> Systems:
    chance = random.Random(1)
    row = OutcomeRow(
        benchmark="", problem_id="", repeat=0, domain="", correct=0, format_ok=True, failure="", status="answered",
        steps=2, workers=("a", "b"), tokens=300, cost_usd=0.01, latency_s=1.0, completion="", answer="",
        unscorable=False, shape="chain", pattern="0←1", usage=(Usage("a", 100, 50), Usage("b", 100, 50)),
    )  # fmt: skip
    difficulty = [[chance.random() for _ in range(QUESTIONS)] for _ in range(BENCHMARKS)]
    return {
        f"system {s}": [
            replace(row, benchmark=f"benchmark {b}", problem_id=str(q), repeat=r, correct=int(chance.random() < rate))
            for b, rates in enumerate(difficulty)
            for q, rate in enumerate(rates)
            for r in range(REPEATS)
        ]
        for s in range(SYSTEMS)
    }
