"""The workers, problems and workflows that this package registers with `ops.core.registry`.

A worker `local/NAME` answers in this process, in the format of OpenAI's chat completions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from ops.core.messages import Sample
from ops.core.problem import Problem, Split
from ops.core.registry import StaticStep
from ops.synthetic.generalists import SKILLS, respond
from ops.synthetic.reading import parse_task
from ops.synthetic.tools import TOOLS

NAMES = (*TOOLS, *SKILLS)
"""The names of all tools and generalists."""


def answer(
    messages: Sequence[Mapping[str, str]], *, model: str, sample: int | Sample = 0, temperature: float = 1.0, **_: Any
) -> SimpleNamespace:
    """Return the response of a tool or a generalist in the format of OpenAI's chat completions.

    `model` is its name, with or without the prefix `local/`. `sample` and `temperature` affect generalists only. Raises
    `KeyError` for a name that is not among `NAMES`.
    """
    name = model.removeprefix("local/")
    if name in TOOLS:
        text = TOOLS[name](parse_task(messages))
    else:
        text = respond(name, messages, sample=sample, temperature=temperature).text
    return SimpleNamespace(
        model=model,
        choices=[SimpleNamespace(finish_reason="stop", message=SimpleNamespace(content=text))],
        usage=SimpleNamespace(
            prompt_tokens=sum(count_tokens(message["content"]) for message in messages),
            completion_tokens=count_tokens(text),
        ),
    )


def count_tokens(text: str) -> int:
    """Return the number of tokens that a worker bills for a text, a quarter of its characters rounded up."""
    return max(1, (len(text) + 3) // 4)


__all__ = ["NAMES", "answer", "benchmarks", "problems", "workflows"]


def benchmarks() -> frozenset[str]:
    """Return the names of the benchmarks that the synthetic families imitate."""
    from ops.synthetic.problems import mirrored_benchmarks

    return mirrored_benchmarks()


def problems(benchmark: str, split: Split, count: int, seed: int) -> list[Problem]:
    """Return `count` problems of a benchmark and split (see `ops.synthetic.problems.generate_problems`)."""
    from ops.synthetic.problems import generate_problems

    return generate_problems(benchmark, split, count, seed)


def workflows() -> dict[str, tuple[StaticStep, ...]]:
    """Return the steps of each workflow of the fixed set by the workflow's name."""
    from ops.synthetic.flows import fixed_workflows

    return {flow.name: flow.steps for flow in fixed_workflows()}
