"""How long things are before they are there: the Conductor's prompts, questions, and how many of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from ops.benchmarks.base import EMBEDDED_TEST
from ops.benchmarks.files import scan
from ops.benchmarks.registry import BENCHMARKS, training_benchmarks
from ops.benchmarks.store import asked_of, raw_files, read_problems
from ops.config import Recipe, RoundLimits, Setup
from ops.core.errors import DataError
from ops.core.problem import Problem
from ops.core.rows import ResponseRow
from ops.core.workspace import Workspace
from ops.planning.estimate import ANSWER_TOKENS, CHARACTERS_PER_TOKEN, OTHER_TOKENS, TOOL_TOKENS
from ops.workflow.prompt import conductor_messages, load_few_shots, recursive_messages

QUESTION = (150.0, 1500.0)
"""Tokens of a question, in the mean and at most, where none is stored: assumptions."""
EMBEDDED_QUESTION = (26.0, 60.0)
"""The same of the embedded families, which were counted."""
COMPACT_CHARACTERS_PER_TOKEN = 2.2
"""Of compact prompts, which are numbers for a good part: counted with SmolLM2's tokenizer and a scratch one."""
TEMPLATE_TOKENS = 30
"""What a pretrained model's chat template adds: SmolLM2's."""
TURN_TOKENS = 5
"""What it adds to every further turn, in the mean of its own and a scratch policy's two."""
CUT_TOKENS = 15
"""Of the mark in a final response that lost its middle."""
USUAL_COMPLETION = 0.35
"""Share of `max_completion_tokens` that a completion takes, as expected."""
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
    round_prompt: float = 0.0
    """Of a recursive round, which shows the completion before it and the final response; 0: the recipe has none."""
    longest_round_prompt: int = 0

    @property
    def longest(self) -> int:
        """Of the first and of later rounds."""
        return max(self.longest_prompt, self.longest_round_prompt)


def lengths(setup: Setup, rows: Sequence[ResponseRow] = ()) -> Lengths:
    """From the stored shortlist where it is this recipe's; else as assumed above. Raises `ConfigError`.

    `rows`: what workers have answered, from which the responses that recursive rounds show have their mean.
    """
    recipe = setup.recipe
    stored = [_question_tokens(problem) for problem in stored_shortlist(setup)]
    embedded = all(source.source == "embedded" for source in recipe.benchmarks.values())
    assumed = EMBEDDED_QUESTION if embedded else QUESTION
    mean, longest = (fmean(stored), max(stored)) if stored else assumed
    policys = _prompt_tokens(setup, (mean, longest))
    known = Lengths(mean, policys[0], round(policys[1]), bool(stored))
    if not in_rounds(recipe):
        return known
    more, most = _round_adds(setup, rows, _finer(recipe))
    return known._replace(round_prompt=known.prompt + more, longest_round_prompt=known.longest_prompt + round(most))


def prompts(setup: Setup) -> list[float]:
    """Tokens of the Conductor's prompt for each problem at hand: candidates and test questions that are stored, or rows
    of the recipe's files. Empty where there are none yet. Raises `ConfigError`."""
    return _prompt_tokens(setup, [_question_tokens(problem) for problem in _at_hand(setup)])


def _at_hand(setup: Setup) -> list[Problem]:
    workspace, recipe = setup.workspace, setup.recipe
    problems = stored_shortlist(setup)
    candidates = bool(problems)
    for name, source in recipe.benchmarks.items():
        for split, file in raw_files(workspace, recipe, name).items():
            if split == "train" and candidates:
                continue
            try:
                read = read_problems(file) if candidates and file.is_file() else None
                if read is None and source.source == "file" and source.files(split):
                    read = BENCHMARKS[name].read(split, source, workspace, recipe.seed).problems
            except DataError:  # the stage that loads it says so
                continue
            problems += asked_of(read or [], recipe, name) if split == "test" else read or []
    return problems


def _question_tokens(problem: Problem) -> float:
    return _tokens([problem.question, *problem.choices])


def _prompt_tokens(setup: Setup, questions: Sequence[float]) -> list[float]:
    """Tokens of the policy in the prompt for each question, whose ordinary tokens are given."""
    recipe, offered = setup.recipe, len(setup.pool.workers)
    shown = recipe.prompting.model_copy(update={"cards": False})
    few_shots = load_few_shots(setup.workspace.texts, recipe.prompting.few_shots)
    nothing = Problem("", "", "", "test", "", "", "text")
    frame = _tokens(message["content"] for message in conductor_messages(nothing, offered, shown, few_shots))
    frame += CARD_TOKENS * offered * recipe.prompting.cards
    template = TEMPLATE_TOKENS if recipe.policy.kind == "pretrained" else 0
    return [template + _finer(recipe) * (frame + question) for question in questions]


def _finer(recipe: Recipe) -> float:
    """The policy's tokens to a token of ordinary text."""
    return CHARACTERS_PER_TOKEN / COMPACT_CHARACTERS_PER_TOKEN if recipe.prompting.style == "compact" else 1.0


def in_rounds(recipe: Recipe) -> bool:
    """Whether the policy ever reads a recursive round."""
    return recipe.recursive is not None or (recipe.cold_start is not None and recipe.cold_start.recursive_share > 0)


def _round_adds(setup: Setup, rows: Sequence[ResponseRow], finer: float) -> tuple[float, float]:
    """Tokens that a recursive round's prompt has beside the first round's, mean and most: the completion, the words
    around the response and the response, cut as the recipe says. Of workers that were never asked, all usual ones
    weigh the same; what they think is not shown. `finer`: the policy's tokens to a token of ordinary text."""
    recipe, workers = setup.recipe, setup.pool.workers
    limit = (recipe.recursive.limits if recipe.recursive else RoundLimits()).answer_tokens
    names = {worker.name for worker in workers}
    said = [_tokens([row.response.text]) for row in rows if row.status == "ok" and row.worker in names] or [
        TOOL_TOKENS if "tool" in worker.tags else ANSWER_TOKENS.get(BENCHMARKS[name].grader, OTHER_TOKENS)
        for worker in workers
        for name in training_benchmarks(recipe.benchmarks)
    ]
    most = float(max(worker.max_tokens for worker in workers))
    if limit is not None:
        said = [min(tokens, limit + CUT_TOKENS) for tokens in said]
        most = min(most, limit + CUT_TOKENS)
    words = _tokens(message["content"] for message in recursive_messages([], "", "", style=recipe.prompting.style))
    turns, written = 2 * TURN_TOKENS, recipe.grpo.max_completion_tokens
    mean = turns + USUAL_COMPLETION * written + finer * (words + fmean(said))
    return mean, turns + written + finer * (words + most)


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


def stored_shortlist(setup: Setup) -> list[Problem]:
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
