"""What the package registers (`ops.core.registry`): workers `local/NAME`, problems, and workflows of those workers."""

from __future__ import annotations

from ops.core.problem import Problem, Split
from ops.core.registry import StaticStep
from ops.synthetic.provider import NAMES, answer

__all__ = ["NAMES", "answer", "benchmarks", "problems", "workflows"]


def benchmarks() -> frozenset[str]:
    """The benchmarks that a family mirrors."""
    from ops.synthetic.problems import mirrored

    return mirrored()


def problems(benchmark: str, split: Split, count: int, seed: int) -> list[Problem]:
    """As `generate`."""
    from ops.synthetic.problems import generate

    return generate(benchmark, split, count, seed)


def workflows() -> dict[str, tuple[StaticStep, ...]]:
    """The stated set, by name."""
    from ops.synthetic.flows import flows

    return {flow.name: flow.steps for flow in flows()}
