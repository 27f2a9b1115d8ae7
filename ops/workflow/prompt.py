"""Build the Conductor's prompt from a problem, the ordinals of the workers on offer and worked examples."""

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
from ops.workflow.turn_end import (
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
"""A function that returns the number of tokens of a chat, including those of its template."""


class PromptTooLongError(PodiumError):
    """Raised for a prompt that leaves no room for a completion in the model's context.

    `where` names the problem or the place of the prompt, `tokens` is the length of the prompt, and `limit` is the
    largest length that leaves room for a completion (both in tokens). `index` is the position of the prompt in its
    batch.
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
        """Return the error for the prompt of a problem, which the message names."""
        return cls(f"{problem.benchmark} problem {problem.id}", tokens, limit)


def check_prompt_length(messages: Sequence[Message], problem: Problem, count_tokens: CountTokens, limit: int) -> None:
    """Raise `PromptTooLongError`, which names the problem, if its prompt is longer than `limit` tokens."""
    if (tokens := count_tokens(messages)) > limit:
        raise PromptTooLongError.for_problem(problem, tokens, limit)


def assign_ordinals(pool: Pool, seed: int | None, *, only: Sequence[str] | None = None) -> tuple[Worker, ...]:
    """Return the workers of a pool in the order of the ordinals that they get.

    If `seed` is None, this is the order of the pool; otherwise the workers are shuffled with the seed. `only` restricts
    the result to the workers with these names. Raises `KeyError` if a name is not in the pool, and `ValueError` if no
    worker is left.
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
    """Return the chat that asks the Conductor for a workflow.

    `offered` is the number of workers on offer or their ordinals. In the style "full", the chat is one user message
    that explains the task, shows the examples and asks for a workflow. In the style "compact", the chat shows the
    examples as past turns and then only the question, the number of its choices and the ordinals. It leaves out the
    texts of the choices, because only the workers need them.

    The examples use the ordinals on offer. Examples with more than `prompting.max_steps` steps are left out, because
    they would break the limit that the prompt states. `cards` has the description of each worker by ordinal, and is
    shown if `prompting.cards` is True. Raises `ValueError` if a description is missing in this case.
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
    """Replace a random share of the words of a question by random letters of the same number.

    `share` is the probability (0 to 1) of each word to be replaced. `seed` and the key of the problem determine the
    result. Numbers, choices, tests and the answer stay the same. Training uses this for `prompting.unknown_words`.
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
    """Return the chat that asks the Conductor for the next round (section 3.2 of arXiv:2512.04388).

    It consists of the chat of the first round, the Conductor's `previous_completion`, and a message that shows
    `answer`, the answer of the workflow in that completion. Lists in `answer` have no effect, because only completions
    are parsed.
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
    # The example shows both forms of access, and its subtasks are abstract so that they do not suggest a strategy.
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
