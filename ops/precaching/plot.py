"""Plot each worker's accuracy against its cost per call."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

from ops.precaching.profiles import Profile, Score

_FREE = 0.4
"""Position of free workers on the logarithmic axis, as a factor of the lowest price."""


def accuracy_against_cost(profiles: Sequence[Profile], oracle: Score | None = None) -> bytes:
    """Draw a PNG: mean accuracy over the benchmarks (%, ± standard error) against USD per 1,000 calls, by worker.

    `oracle`: score of choosing the best worker for each problem, drawn as a line. Unreachable workers are omitted.
    Raises `ValueError` if no profile has an answer.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    from ops.precaching.profiles import mean_score

    shown = [profile for profile in profiles if profile.overall.n]
    if not shown:
        raise ValueError("no worker has answered a problem: there is nothing to draw")
    prices = [profile.cost_usd for profile in shown if profile.cost_usd > 0]
    free = min(prices, default=1e-6) * _FREE
    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for profile in shown:
        score = mean_score(profile.by_benchmark.values())
        x, y, error = 1000 * (profile.cost_usd or free), 100 * score.accuracy, 100 * score.se
        axes.errorbar(x, y, yerr=error, fmt="o", color="#1f5a8a", ecolor="#9db4c8", capsize=3, markersize=6)
        label = profile.worker if profile.cost_usd > 0 else f"{profile.worker} (no price)"
        axes.annotate(label, (x, y), xytext=(7, 5), textcoords="offset points", fontsize=9)
    if oracle is not None and oracle.n:
        axes.axhline(100 * oracle.accuracy, color="#b5651d", linestyle="--", linewidth=1)
        axes.annotate(
            f"best worker of each problem, with hindsight: {100 * oracle.accuracy:.1f} %",
            (0.01, 100 * oracle.accuracy), xycoords=("axes fraction", "data"), xytext=(0, 4),
            textcoords="offset points", fontsize=9, color="#b5651d",
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlim(1000 * min([free, *prices]) / 1.5, 1000 * max([free, *prices]) * 3)
    axes.set_ylim(-2, min(104, max(axes.get_ylim()[1], 100 * oracle.accuracy if oracle else 0) * 1.15 + 2))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda usd, _: f"${usd:,g}"))
    axes.set_xlabel("mean USD for 1,000 calls")
    axes.set_ylabel("accuracy in % ± standard error")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, axis="y", color="#e6e6e6")
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()
