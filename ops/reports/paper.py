"""Figures of arXiv:2512.04388, for comparison. The paper uses seven paid workers and a 7B policy.

Accuracies are in %, tokens and USD per question.
"""

from __future__ import annotations

from typing import NamedTuple

OTHER_SETTING = "paper, its own setting"
"""The head of a column with the paper's figures if this run uses another setting than the paper."""


class ReportedMeans(NamedTuple):
    """Means over the four in-domain benchmarks, with workers that are constrained as in training."""

    accuracy: float
    tokens: float | None = None
    usd: float | None = None


CONSTRAINED = {
    "math500": "89.33 ± 0.58",
    "mmlu": "93.14 ± 0.36",
    "rlpr": "42.63 ± 0.65",
    "livecodebench": "64.29 ± 2.01",
}
"""The Conductor's accuracy with workers that are constrained as in training, by benchmark."""
UNCONSTRAINED = {
    "math500": "99.4", "mmlu": "94.1", "rlpr": "44.75", "livecodebench": "83.93", "aime25": "93.3",
    "bigcodebench": "37.86", "gpqa_diamond": "87.5",
}  # fmt: skip
"""Accuracy of the Conductor with workers at their maximum settings: mean 77.27; best single worker 74.78."""
BEST_WORKER = "best worker"
REPORTED_SYSTEMS = {
    "conductor": ReportedMeans(72.35, 1820, 0.0238),
    BEST_WORKER: ReportedMeans(64.14),
    "five_context": ReportedMeans(67.60),
    "five_reflection": ReportedMeans(64.52),
    "mixture_of_agents": ReportedMeans(62.13, 11203, 0.0486),
    "mas_router": ReportedMeans(56.89, 4970, 0.0135),
    "smoothie": ReportedMeans(56.48, 9909, 0.0393),
    "router_dc": ReportedMeans(52.41, 840, 0.0056),
}
ABLATIONS = {
    "full": (89.33, 93.14, 42.63, 64.29),
    "without subtasks": (88.5, 92.75, 41.95, 58.62),
    "without few-shots": (82.00, 92.69, 41.50, 54.86),
    "fine-grained access": (88.67, 93.55, 42.28, 61.24),
    "few-shots in-distribution": (88.20, 92.31, 42.60, 58.32),
    "few-shots mixed": (88.70, 92.62, 42.60, 61.43),
}
"""The accuracy of each ablation on MATH500, MMLU, RLPR and LiveCodeBench."""
REPORTED_STEPS = "a mean of 3 steps: 1 to 2 on MMLU, 3 to 4 on LiveCodeBench, without a penalty on length"
REPORTED_ONE_WORKER = "all steps forced to one worker: OOD mean 69.81 against 72.89"


def column_head(has_paper_setting: bool) -> str:
    """Return the head of the column with the paper's figures."""
    return "paper" if has_paper_setting else OTHER_SETTING
