"""Cold-start validation: the share of valid workflows that the policy before GRPO writes for unseen problems."""

from __future__ import annotations

from collections import Counter

from ops.evaluation.arms import Findings, draw_estimates
from ops.evaluation.study import FormatCompliance, TrainingRecord, observation
from ops.results.leaderboard import TableData, format_accuracy
from ops.results.statistics import estimate_accuracy

MIN_VALID_SHARE = 0.95
"""The share of valid workflows that a cold start should reach."""


@observation(
    "Cold-start validation",
    40,
    about="the policy before GRPO writes one workflow for each of up to 100 problems that it was not taught, drawn "
    "as GRPO draws and greedily; no worker is asked",
    after="base_policy",
)
def cold_start_validation(record: TrainingRecord) -> Findings:
    """Tabulate valid workflows and format failures, at GRPO's temperature and with greedy decoding."""
    seen = {
        f"temperature {record.temperature:g}, as GRPO draws": record.measure_compliance(record.temperature),
        "greedily, as it is served": record.measure_compliance(0.0),
    }
    failures = sum((Counter(dict(each.failures)) for each in seen.values()), Counter[str]())
    estimates = {
        name: estimate_accuracy([1.0] * each.valid_completions + [0.0] * (each.completions - each.valid_completions))
        for name, each in seen.items()
    }
    return Findings(
        summary=TableData(
            ["drawn", "problems", "workflows, %", f"at least {MIN_VALID_SHARE:.0%}", "the others"],
            [_row(name, each, format_accuracy(estimates[name])) for name, each in seen.items()],
        ),
        details=TableData(["why it is no workflow", *seen], [
            [name, *(each.failures.get(name, 0) for each in seen.values())] for name, _ in failures.most_common()
        ]),
        note="Problems of the shortlist that the training mix left out, or those that the recipe holds out.",
        picture=draw_estimates(
            {name: {"workflows": estimate} for name, estimate in estimates.items()}, "workflows in %"
        ),
    )  # fmt: skip


def _row(name: str, seen: FormatCompliance, share: str) -> list[str | int | float]:
    others = ", ".join(f"{failure} {count}" for failure, count in Counter(dict(seen.failures)).most_common())
    return [
        name,
        seen.completions,
        share,
        "yes" if seen.valid_completions >= MIN_VALID_SHARE * seen.completions else "no",
        others or "–",
    ]
