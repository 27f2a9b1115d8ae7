"""What the Conductor is shown: a problem, the workers on offer as ordinals, worked examples."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Literal

from ops.config import Pool, Prompting, Worker
from ops.core.errors import PodiumError
from ops.core.messages import Message
from ops.core.problem import Problem
from ops.workflow.cards import WorkerCard
from ops.workflow.few_shots import FewShot, FewShotFile, FewShotStep, load_few_shots
from ops.workflow.grammar import SOLVE_SUBTASK, OfferedWorkers, Step, Workflow, offered_ordinals
from ops.workflow.turn import (
    COMPACT_OFFER_HEADING,
    EXAMPLE_HEADING,
    OFFER_HEADING,
    QUESTION_HEADING,
    RESPONSE_END,
    YOUR_TURN_HEADING,
)

__all__ = [
    "FewShot",
    "FewShotFile",
    "FewShotStep",
    "PromptTooLongError",
    "assign_ordinals",
    "build_conductor_messages",
    "build_recursive_messages",
    "check_prompt_length",
    "load_few_shots",
    "mask_words",
]

_WORD = re.compile(r"[^\W\d_]+")

CountTokens = Callable[[Sequence[Message]], int]
"""The tokens of a chat, template included."""


class PromptTooLongError(PodiumError):
    """A prompt leaves no room for a completion: `where` it is asked, its `tokens` and the `limit`.

    `index` is its place among prompts that were given together.
    """

    def __init__(self, where: str, tokens: int, limit: int, *, index: int = 0) -> None:
        super().__init__(
            f"{where}: the Conductor's prompt has {tokens:,} tokens, and its model takes {limit:,} before the "
            "completion. Raise policy.max_tokens (of a policy made from scratch), take a model with a longer context, "
            "show fewer examples (prompting.few_shots: none) or allow a shorter completion (grpo.max_completion_tokens)"
        )
        self.where, self.tokens, self.limit, self.index = where, tokens, limit, index

    @classmethod
    def for_problem(cls, problem: Problem, tokens: int, limit: int) -> PromptTooLongError:
        """The error that names the problem."""
        return cls(f"{problem.benchmark} problem {problem.id}", tokens, limit)


def check_prompt_length(messages: Sequence[Message], problem: Problem, count_tokens: CountTokens, limit: int) -> None:
    """Raise `PromptTooLongError`, naming the problem, when its prompt is beyond `limit` tokens."""
    if (tokens := count_tokens(messages)) > limit:
        raise PromptTooLongError.for_problem(problem, tokens, limit)


def assign_ordinals(pool: Pool, seed: int | None, *, only: Sequence[str] | None = None) -> tuple[Worker, ...]:
    """The pool's workers by ordinal, or those named in `only`: in the pool's order, or shuffled by `seed`.

    Raises `KeyError` for a name that is not in the pool, `ValueError` when no worker is left.
    """
    chosen = set(pool.names) if only is None else {pool.worker(name).name for name in only}
    workers = [worker for worker in pool.workers if worker.name in chosen]
    if not workers:
        raise ValueError(f"no worker of pool {pool.name!r} is offered")
    if seed is not None:
        random.Random(seed).shuffle(workers)
    return tuple(workers)


def build_conductor_messages(
    problem: Problem,
    offered: OfferedWorkers,
    prompting: Prompting,
    few_shots: Sequence[FewShot],
    *,
    cards: Sequence[WorkerCard] = (),
) -> list[Message]:
    """The chat that asks the Conductor for a workflow with `offered` workers on offer: their number, or their ordinals.

    "full": one user message that explains the task, shows the examples and asks. "compact": the
    question, how many choices there are (their texts are for the workers) and the ordinals; examples as
    past turns. Examples are shown with the ordinals on offer; those with more steps than `prompting.max_steps`
    are left out: they would break the rule that they illustrate. `cards`, by ordinal, are shown where
    `prompting.cards` asks for them. Raises `ValueError` when one is missing then.
    """
    ordinals = offered_ordinals(offered)
    if prompting.cards and len(cards) != len(ordinals):
        raise ValueError(f"{len(cards)} cards for {len(ordinals)} workers on offer")
    measured = cards if prompting.cards else ()
    shown = [example.renumber_for(ordinals) for example in few_shots if len(example.steps) <= prompting.max_steps]
    if not prompting.subtasks:
        shown = [example.without_subtasks() for example in shown]
    if prompting.style == "compact":
        return _build_compact_messages(problem, ordinals, shown, measured)
    question = _render_question(problem.question, problem.choices)
    parts = [_render_instruction(prompting, ordinals)]
    parts.extend(_render_example(number, shot, ordinals) for number, shot in enumerate(shown, 1))
    if shown:
        parts.append(YOUR_TURN_HEADING)
    parts.append(f"{_render_request(question, ordinals, measured)}\n\nThink first, then end with the three lists.")
    return [_user_message("\n\n".join(parts))]


def mask_words(problem: Problem, share: float, seed: str) -> Problem:
    """Return the problem with about `share` of the question's words as random letters; `seed` and its key decide which.

    Numbers, choices, tests and the answer stay. For training (`prompting.unknown_words`).
    """
    if not share:
        return problem
    drawn = random.Random(f"{seed} {problem.key}")

    def shown(word: re.Match[str]) -> str:
        if drawn.random() >= share:
            return word[0]
        return "".join(drawn.choices(string.ascii_lowercase, k=len(word[0])))

    return replace(problem, question=_WORD.sub(shown, problem.question))


def build_recursive_messages(
    first_messages: Sequence[Message], previous_completion: str, answer: str, *, style: Literal["full", "compact"]
) -> list[Message]:
    """The chat of a recursive round: the first round's, what was written then, and what came of it.

    `previous_completion` is the Conductor's own earlier completion, `answer` the final response of the workflow
    in it. Only the next completion is ever parsed, so lists in `answer` are words.
    (Section 3.2 of arXiv:2512.04388.)
    """
    again = (_COMPACT_ROUND_REQUEST if style == "compact" else _ROUND_REQUEST).format(answer=answer, **_ROUND_FIELDS)
    return [*first_messages, {"role": "assistant", "content": previous_completion}, _user_message(again)]


def _build_compact_messages(
    problem: Problem, offered: Collection[int], examples: Sequence[FewShot], cards: Sequence[WorkerCard]
) -> list[Message]:
    messages: list[Message] = []
    for example in examples:
        messages.append(_user_message(_render_compact_request(example, offered)))
        messages.append({"role": "assistant", "content": example.workflow.render()})
    return [*messages, _user_message(_render_compact_request(problem, offered, cards))]


def _render_compact_request(
    problem: Problem | FewShot, offered: Collection[int], cards: Sequence[WorkerCard] = ()
) -> str:
    choices = f"\nChoices: {len(problem.choices)}" if problem.choices else ""
    strengths = "".join(
        f"\n{ordinal}: {card.describe_briefly()}" for ordinal, card in zip(offered, cards, strict=False)
    )
    return f"{problem.question}{choices}\n{COMPACT_OFFER_HEADING}{' '.join(map(str, offered))}{strengths}"


_ROUND_FIELDS = {"keep": Workflow(()).render(), "end": RESPONSE_END}

_ROUND_REQUEST = """\
Your plan was carried out. The response of its last step was:

{answer}

{end}

Judge it: does it answer the question, completely and in the form that is asked for? If you trust it, keep it \
by writing three empty lists:

{keep}

Otherwise write a better plan for the same question and the same models; a step that sees all earlier \
steps also sees the response above. Think first, then end with the three lists."""

_COMPACT_ROUND_REQUEST = "Response: {answer}\nAgain?"

_INSTRUCTION = """\
You are the conductor of a team of language models. You do not answer the question yourself: \
you write a workflow for the models. It is carried out exactly as you write it, and the response of its last \
step is taken as the answer.

First think freely about what the question needs. Then write the workflow as three Python lists of the same \
length with one entry for each step, and with at most {max_steps} steps. They look like this:

{instance}

The list model_id has the number of the model that does each step. A model may do several steps.
The list subtasks has {subtasks}
The list access_list has {access}

The last step must give the complete final answer to the question. Assign each of the three names a list in square \
brackets, also where the workflow has one step only. Write plain values: no variables, no calls, no comments in \
the lists."""

_ACCESS = {
    "binary": '[] for each step that sees only the question, and ["all"] for each step that also sees the subtasks '
    "and responses of all earlier steps.",
    "fine_grained": '[] for each step that sees only the question, ["all"] for each step that also sees the subtasks '
    "and responses of all earlier steps, and a list such as [0, 2] for each step that sees only these earlier ones "
    "(the first step is 0).",
}


_SUBTASKS = {
    True: "a string in double quotes for each step, which tells its model what to do and in what form. Every model "
    "also reads the full question, so it need not be repeated.",
    False: f'the string "{SOLVE_SUBTASK}" for each step: every model reads the full question and is told only that.',
}


def _render_instruction(prompting: Prompting, offered: Collection[int]) -> str:
    # Both forms of access, and no work that would suggest a strategy.
    first, *others = offered
    steps = (
        Step(others[0] if others else first, "What the model of the first step is to do."),
        Step(first, "What the model of the second step is to do.", "all"),
    )
    instance = Workflow(steps[: prompting.max_steps])
    return _INSTRUCTION.format(
        max_steps=prompting.max_steps,
        subtasks=_SUBTASKS[prompting.subtasks],
        access=_ACCESS[prompting.access],
        instance=(instance if prompting.subtasks else instance.without_subtasks()).render(),
    )


def _render_request(question: str, offered: Collection[int], cards: Sequence[WorkerCard] = ()) -> str:
    models = ", ".join(f"Model {ordinal}" for ordinal in offered)
    if not cards:
        return f"{QUESTION_HEADING}\n{question}\n\n{OFFER_HEADING}{models}"
    lines = "\n".join(f"Model {ordinal}: {card.describe()}" for ordinal, card in zip(offered, cards, strict=True))
    return (
        f"{QUESTION_HEADING}\n{question}\n\n{OFFER_HEADING}{models}\n"
        f"What was measured of them (share of right answers alone, mean price):\n{lines}"
    )


def _render_question(question: str, choices: Sequence[str]) -> str:
    lettered = (f"{letter}) {text}" for letter, text in zip(string.ascii_uppercase, choices, strict=False))
    return "\n".join([question, *lettered])


def _render_example(number: int, example: FewShot, offered: Collection[int]) -> str:
    question = _render_request(_render_question(example.question, example.choices), offered)
    head = f"{EXAMPLE_HEADING.format(number=number)}\n{question}"
    return f"{head}\n\n{example.reasoning.strip()}\n\n{example.workflow.render()}"


def _user_message(content: str) -> Message:
    return {"role": "user", "content": content}
