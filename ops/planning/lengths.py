"""Estimate the token lengths of questions and of the Conductor's prompts, and count the test questions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from ops.benchmarks.base import EMBEDDED_TEST
from ops.benchmarks.files import scan_rows
from ops.benchmarks.problem_files import raw_files, read_problems, select_evaluated_questions
from ops.benchmarks.registry import BENCHMARKS, training_benchmarks
from ops.config import Recipe, RoundLimits, Setup
from ops.core.errors import DataError
from ops.core.problem import Problem
from ops.core.response_rows import ResponseRow
from ops.core.workspace import Workspace
from ops.planning.estimate import ANSWER_TOKENS, CHARACTERS_PER_TOKEN, OTHER_ANSWER_TOKENS, TOOL_ANSWER_TOKENS
from ops.workflow.prompt import build_conductor_messages, build_recursive_messages, load_few_shots

ASSUMED_QUESTION_TOKENS = (150.0, 1500.0)
"""The mean and the maximum tokens of a question that are assumed if no questions are stored."""
EMBEDDED_QUESTION_TOKENS = (26.0, 60.0)
"""The measured mean and maximum tokens of a question of the embedded problem families."""
COMPACT_CHARACTERS_PER_TOKEN = 2.2
"""Characters per token in compact prompts, which contain many numbers. It was measured with SmolLM2's tokenizer and
with that of a policy trained from scratch."""
TEMPLATE_TOKENS = 30
"""Tokens that a pretrained model's chat template adds to a prompt, measured with SmolLM2's template."""
TURN_TOKENS = 5
"""Tokens that a chat template adds per further turn: the mean for SmolLM2 and for a policy trained from scratch."""
OMISSION_MARK_TOKENS = 15
"""Tokens of the mark that replaces the middle of a truncated final response."""
EXPECTED_COMPLETION_SHARE = 0.35
"""The expected share (0-1) of `max_completion_tokens` that a completion takes."""
CARD_TOKENS = 30
"""The assumed tokens of a worker's card in the prompt."""


class TokenLengths(NamedTuple):
    """The mean and maximum lengths of questions and of the Conductor's prompts, in tokens."""

    question: float
    """Mean tokens of a question, counted by a worker's tokenizer."""
    prompt: float
    """Mean tokens of a first round's prompt, counted by the policy's tokenizer as all following lengths are."""
    longest_prompt: int
    """Tokens of the longest prompt of a first round."""
    is_measured: bool
    """True if the lengths come from stored questions of this recipe, False if they are assumed."""
    round_prompt: float = 0.0
    """Mean tokens of a recursive round's prompt, which includes the previous completion and the final response. 0 means
    that the recipe has no recursive rounds."""
    longest_round_prompt: int = 0
    """Tokens of the longest prompt of a recursive round."""

    @property
    def longest(self) -> int:
        """Return the tokens of the longest prompt of any round."""
        return max(self.longest_prompt, self.longest_round_prompt)


def estimate_lengths(setup: Setup, rows: Sequence[ResponseRow] = ()) -> TokenLengths:
    """Measure the lengths on the stored shortlist if it belongs to this recipe, and assume them otherwise.

    `rows` are stored responses, which give the mean length of the responses that recursive rounds show. Raises
    `ConfigError` if the recipe's example texts cannot be read.
    """
    recipe = setup.recipe
    stored = [_question_tokens(problem) for problem in read_shortlist(setup)]
    embedded = all(source.source == "embedded" for source in recipe.benchmarks.values())
    assumed = EMBEDDED_QUESTION_TOKENS if embedded else ASSUMED_QUESTION_TOKENS
    mean, longest = (fmean(stored), max(stored)) if stored else assumed
    policys = _prompt_tokens(setup, (mean, longest))
    known = TokenLengths(mean, policys[0], round(policys[1]), bool(stored))
    if not has_recursive_rounds(recipe):
        return known
    more, most = _added_round_tokens(setup, rows, _policy_token_ratio(recipe))
    return known._replace(round_prompt=known.prompt + more, longest_round_prompt=known.longest_prompt + round(most))


def measure_prompts(setup: Setup) -> list[float]:
    """Return the tokens of the Conductor's prompt for each problem that is available on this machine.

    These problems are stored candidates, stored test questions and rows of the recipe's files. The list is empty if
    none exist yet. Raises `ConfigError` if the recipe's example texts cannot be read.
    """
    return _prompt_tokens(setup, [_question_tokens(problem) for problem in _read_available_problems(setup)])


def _read_available_problems(setup: Setup) -> list[Problem]:
    workspace, recipe = setup.workspace, setup.recipe
    problems = read_shortlist(setup)
    candidates = bool(problems)
    for name, source in recipe.benchmarks.items():
        for split, file in raw_files(workspace, recipe, name).items():
            if split == "train" and candidates:
                continue
            try:
                read = read_problems(file) if candidates and file.is_file() else None
                if read is None and source.source == "file" and source.files(split):
                    read = BENCHMARKS[name].load(split, source, workspace, recipe.seed).problems
            except DataError:  # the stage that loads the file will report the error
                continue
            problems += select_evaluated_questions(read or [], recipe, name) if split == "test" else read or []
    return problems


def _question_tokens(problem: Problem) -> float:
    """Return the approximate tokens of a question with its choices."""
    return _estimate_tokens([problem.question, *problem.choices])


def _prompt_tokens(setup: Setup, questions: Sequence[float]) -> list[float]:
    """Return the tokens of the prompt for each question, counted by the policy's tokenizer.

    `questions` holds the length of each question in tokens of ordinary text.
    """
    recipe, offered = setup.recipe, len(setup.pool.workers)
    shown = recipe.prompting.model_copy(update={"cards": False})
    few_shots = load_few_shots(setup.workspace.texts, recipe.prompting.few_shots)
    nothing = Problem("", "", "", "test", "", "", "text")
    frame = _estimate_tokens(
        message["content"] for message in build_conductor_messages(nothing, offered, shown, few_shots)
    )
    frame += CARD_TOKENS * offered * recipe.prompting.cards
    template = TEMPLATE_TOKENS if recipe.policy.kind == "pretrained" else 0
    return [template + _policy_token_ratio(recipe) * (frame + question) for question in questions]


def _policy_token_ratio(recipe: Recipe) -> float:
    """Return how many tokens the policy's tokenizer needs for one token of ordinary text."""
    return CHARACTERS_PER_TOKEN / COMPACT_CHARACTERS_PER_TOKEN if recipe.prompting.style == "compact" else 1.0


def has_recursive_rounds(recipe: Recipe) -> bool:
    """Return True if the policy is trained on recursive rounds."""
    return recipe.recursive is not None or (recipe.cold_start is not None and recipe.cold_start.recursive_share > 0)


def _added_round_tokens(setup: Setup, rows: Sequence[ResponseRow], token_ratio: float) -> tuple[float, float]:
    """Return the mean and the maximum tokens that a recursive round adds to the first round's prompt.

    A round adds the completion, the text around the response, and the response, which is truncated as the recipe says.
    If no responses are stored, the mean gives equal weight to the assumed answers of all workers and benchmarks.
    Reasoning tokens are not shown. `token_ratio` is the number of the policy's tokens per token of ordinary text.
    """
    recipe, workers = setup.recipe, setup.pool.workers
    limit = (recipe.recursive.limits if recipe.recursive else RoundLimits()).answer_tokens
    names = {worker.name for worker in workers}
    said = [_estimate_tokens([row.response.text]) for row in rows if row.status == "ok" and row.worker in names] or [
        TOOL_ANSWER_TOKENS if "tool" in worker.tags else ANSWER_TOKENS.get(BENCHMARKS[name].grader, OTHER_ANSWER_TOKENS)
        for worker in workers
        for name in training_benchmarks(recipe.benchmarks)
    ]
    most = float(max(worker.max_tokens for worker in workers))
    if limit is not None:
        said = [min(tokens, limit + OMISSION_MARK_TOKENS) for tokens in said]
        most = min(most, limit + OMISSION_MARK_TOKENS)
    words = _estimate_tokens(
        message["content"] for message in build_recursive_messages([], "", "", style=recipe.prompting.style)
    )
    turns, written = 2 * TURN_TOKENS, recipe.grpo.max_completion_tokens
    mean = turns + EXPECTED_COMPLETION_SHARE * written + token_ratio * (words + fmean(said))
    return mean, turns + written + token_ratio * (words + most)


def count_test_questions(workspace: Workspace, recipe: Recipe) -> dict[str, int | None]:
    """Return the number of test questions by benchmark, or None for a benchmark where it is unknown.

    The number is the recipe's cap, the published number or the number of rows in the recipe's files.
    """
    return {name: _count_questions(workspace, recipe, name) for name in recipe.benchmarks}


def _count_questions(workspace: Workspace, recipe: Recipe, name: str) -> int | None:
    source = recipe.benchmarks[name]
    if source.source == "embedded":
        return source.test or EMBEDDED_TEST
    if source.source == "hub":
        rows = BENCHMARKS[name].hub.splits["test"].rows
        return rows if source.test is None or rows is None else min(rows, source.test)
    try:
        rows = sum(1 for file in source.files("test") for _ in scan_rows(workspace.root / file))
    except DataError:
        return None
    return rows if source.test is None else min(rows, source.test)


def read_shortlist(setup: Setup) -> list[Problem]:
    """Return the stored shortlist if its problems come from this recipe's sources, and an empty list otherwise."""
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


def _estimate_tokens(texts: Iterable[str]) -> float:
    """Return the approximate number of tokens of several texts, by their numbers of characters."""
    return sum(map(len, texts)) / CHARACTERS_PER_TOKEN
