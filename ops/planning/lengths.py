"""How long things are before they are there: the Conductor's prompts, questions, and how many of them."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean
from typing import NamedTuple

from ops.benchmarks.base import EMBEDDED_TEST
from ops.benchmarks.files import scan
from ops.benchmarks.registry import BENCHMARKS
from ops.benchmarks.store import read_problems
from ops.config import Recipe, Setup
from ops.core.errors import DataError
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.precaching.estimate import CHARACTERS_PER_TOKEN
from ops.workflow.prompt import conductor_messages, load_few_shots

QUESTION = (150.0, 1500.0)
"""Tokens of a question, in the mean and at most, where none is stored: assumptions."""
EMBEDDED_QUESTION = (26.0, 60.0)
"""The same of the embedded families, which were counted."""
COMPACT_CHARACTERS_PER_TOKEN = 2.2
"""Of compact prompts, which are numbers for a good part: counted with SmolLM2's tokenizer and a scratch one."""
TEMPLATE_TOKENS = 30
"""What a pretrained model's chat template adds: SmolLM2's."""
CARD_TOKENS = 30
"""Of a worker's card in the prompt: an assumption."""


class Lengths(NamedTuple):
    """Of questions and of the Conductor's prompts, mean and longest."""

    question: float
    """Tokens of a worker."""
    prompt: float
    """Tokens of the policy; so is the next."""
    longest_prompt: int
    measured: bool
    """Whether questions of this recipe are stored here."""


def lengths(setup: Setup) -> Lengths:
    """From the stored shortlist where it is this recipe's; else as assumed above. Raises `ConfigError`."""
    recipe = setup.recipe
    stored = [_tokens([problem.question, *problem.choices]) for problem in _stored(setup)]
    embedded = all(source.source == "embedded" for source in recipe.benchmarks.values())
    assumed = EMBEDDED_QUESTION if embedded else QUESTION
    mean, longest = (fmean(stored), max(stored)) if stored else assumed
    offered = len(setup.pool.workers)
    shown = recipe.prompting.model_copy(update={"cards": False})
    few_shots = load_few_shots(setup.workspace.data, recipe.prompting.few_shots)
    nothing = Problem("", "", "", "test", "", "", "text")
    frame = _tokens(message["content"] for message in conductor_messages(nothing, offered, shown, few_shots))
    frame += CARD_TOKENS * offered * recipe.prompting.cards
    finer = CHARACTERS_PER_TOKEN / COMPACT_CHARACTERS_PER_TOKEN if recipe.prompting.style == "compact" else 1.0
    template = TEMPLATE_TOKENS if recipe.policy.kind == "pretrained" else 0
    policys = [template + finer * (frame + question) for question in (mean, longest)]
    return Lengths(mean, policys[0], round(policys[1]), bool(stored))


def questions(workspace: Workspace, recipe: Recipe) -> dict[str, int | None]:
    """Benchmark → test questions: the recipe's cap, the published number, or the rows of its files; None: unknown."""
    return {name: _count(workspace, recipe, name) for name in recipe.benchmarks}


def _count(workspace: Workspace, recipe: Recipe, name: str) -> int | None:
    source = recipe.benchmarks[name]
    if source.source == "embedded":
        return source.test or EMBEDDED_TEST
    if source.source == "hub":
        rows = BENCHMARKS[name].hub.parts["test"].rows
        return rows if source.test is None or rows is None else min(rows, source.test)
    try:
        rows = sum(1 for file in source.files("test") for _ in scan(workspace.root / file))
    except DataError:
        return None
    return rows if source.test is None else min(rows, source.test)


def _stored(setup: Setup) -> list[Problem]:
    """The shortlist, where its problems come from where this recipe says."""
    file, named = setup.workspace.data / "shortlist.jsonl", setup.recipe.benchmarks
    if not file.is_file():
        return []
    try:
        problems = read_problems(file)
    except DataError:
        return []
    ours = all(
        problem.benchmark in named and bool(problem.family) == (named[problem.benchmark].source == "embedded")
        for problem in problems
    )
    return problems if ours else []


def _tokens(texts: Iterable[str]) -> float:
    return sum(map(len, texts)) / CHARACTERS_PER_TOKEN
