"""The procedure with which a generalist answers alone, uses the responses of others, checks answers or votes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from ops.core.messages import Sample
from ops.synthetic import sums
from ops.synthetic.formal import format_expression_line
from ops.synthetic.generalists import algebra, facts, programs, quantities
from ops.synthetic.generalists.skills import (
    SKILLS,
    GeneralistTask,
    Method,
    MethodResult,
    Misstep,
    MisstepModel,
    Skill,
    sample_seed,
)
from ops.synthetic.knowledge import find_choice, parse_quantity
from ops.synthetic.lists import find_operations
from ops.synthetic.reading import Task, find_answers, format_answer, parse_task

_METHODS: tuple[Method, ...] = (
    algebra.solve_sum,
    facts.look_up_attribute,
    quantities.evaluate_shown_formula,
    algebra.solve_quadratic,
    quantities.evaluate_written_formula,
    algebra.find_pair,
    quantities.solve_account,
    quantities.evaluate_sentence,
    quantities.solve_story,
    quantities.solve_timetable,
    facts.order_things,
    facts.compare_things,
    facts.recall_attribute,
    quantities.convert_quantity,
)
_CHECKING = re.compile(r"\b(?:check|verify|review)")
_CONTINUING = re.compile(r"\b(?:choose|convert|compute|find|look up)")


class GeneralistResponse(NamedTuple):
    """A response of a generalist."""

    text: str
    """The text of the response."""
    missteps: tuple[Misstep, ...]
    """All missteps that led to the response."""


def respond(
    name: str, messages: Sequence[Mapping[str, str]], *, sample: int | Sample = 0, temperature: float = 1.0
) -> GeneralistResponse:
    """Return the response of the generalist `name` to a chat.

    The same arguments always give the same response. Raises `KeyError` if there is no such generalist.
    """
    task = parse_task(messages)
    request = "\x1e".join(f"{message['role']}\x1f{message['content']}" for message in messages)
    question = f"{task.question}\x1f{sorted(task.choices.items())}"
    chance = MisstepModel(name, question, request, sample_seed(Sample.of(sample)), temperature)
    return _respond(task, SKILLS[name], chance)


def _respond(task: Task, skill: Skill, chance: MisstepModel) -> GeneralistResponse:
    # A sum is worked out, whatever an earlier worker made of it.
    shown = find_answers(task) if sums.find_sum(task.question) is None else []
    if shown and _CHECKING.search(task.subtask):
        return _check_answers(task, skill, chance, shown)
    believes = bool(shown) and _is_final(task, shown[-1]) and not _CONTINUING.search(task.subtask)
    if believes and not chance.has_misstep(1 - skill.trust, "trust", "an earlier answer"):
        chance.record_misstep("trust", "an earlier answer", f"{shown[-1][:40]} was passed on as it was")
        return GeneralistResponse(_format_final(task, shown[-1]), tuple(chance.missteps))
    return _solve(task, skill, chance, shown)


def _solve(task: Task, skill: Skill, chance: MisstepModel, shown: Sequence[str]) -> GeneralistResponse:
    mind = GeneralistTask(task, skill, chance)
    drafting = "formula" in task.subtask or "plan" in task.subtask
    if drafting and (draft := _write_draft(mind)) is not None:
        return GeneralistResponse(draft, tuple(chance.missteps))
    finding = _apply_methods(mind, shown)
    notes = (*finding.notes, "I checked it: it fits." if finding.is_verified else "I did not check it.")
    text = _format_final(task, _format_result(mind, finding))
    return GeneralistResponse("\n".join([*notes, text]), tuple(chance.missteps))


def _apply_methods(mind: GeneralistTask, shown: Sequence[str]) -> MethodResult:
    if mind.task.form == "program":
        return programs.write_answer_program(mind) or MethodResult("print(input())")
    if shown and not _is_final(mind.task, shown[-1]):
        return MethodResult(shown[-1])  # an unformatted value: continue from it
    for method in _METHODS:
        if (finding := method(mind)) is not None:
            return finding
    return _guess(mind)


def _guess(mind: GeneralistTask) -> MethodResult:
    mind.missteps.record_misstep("guess", "the whole question", "not understood")
    if mind.task.choices:
        return MethodResult(mind.missteps.choose(sorted(mind.task.choices.values()), "guess", "a choice"))
    numbers = re.findall(r"\d+(?:\.\d+)?", mind.task.question)
    return MethodResult(mind.missteps.choose(numbers, "guess", "a number") if numbers else "yes")


def _write_draft(mind: GeneralistTask) -> str | None:
    """Return the formula or plan that was asked for instead of an answer, as this generalist reads it."""
    if understood := quantities.understand_formula(mind):
        return format_expression_line(mind.task.question, *understood)
    if steps := find_operations(mind.task.question):
        return f"PLAN: {'; '.join(programs.read_operations(mind, steps))}"
    return None


def _format_result(mind: GeneralistTask, finding: MethodResult) -> str:
    """Return the value with its unit, or the letter of the equal choice."""
    value = f"{finding.value} {finding.unit}".strip()
    if not mind.task.choices or re.fullmatch(r"[A-J]", value):
        return value
    if letter := find_choice(mind.task.choices, _convert_to_choices(mind, value), converting=False):
        return letter
    letter = mind.missteps.choose(sorted(mind.task.choices), "guess", "a letter")
    mind.missteps.record_misstep("guess", "the letter", f"no choice is {value}; {letter} was guessed")
    return letter


def _convert_to_choices(mind: GeneralistTask, value: str) -> str:
    """Return the value in the unit of the choices, as this generalist converts it."""
    given, offered = parse_quantity(value), parse_quantity(next(iter(mind.task.choices.values())))
    if not given or not offered or not given[1] or not offered[1] or given[1] == offered[1]:
        return value
    converted = quantities.convert_to_unit(mind, Fraction(str(given[0])), given[1], offered[1])
    return f"{converted.value} {converted.unit}" if converted else value


def _is_final(task: Task, answer: str) -> bool:
    return not task.choices or re.fullmatch(r"[A-J]", answer) is not None


def _format_final(task: Task, answer: str) -> str:
    return f"```python\n{answer}\n```" if task.form == "program" else format_answer(task, answer)


# ── checking ─────────────────────────────────────────────────────────────────


def _check_answers(task: Task, skill: Skill, chance: MisstepModel, shown: Sequence[str]) -> GeneralistResponse:
    """Return a shown answer that can be verified.

    If there is none, return the most frequent answer among the shown ones and the generalist's own attempts.
    """
    for answer in reversed(shown):
        if _verify_answer(task, answer):
            return GeneralistResponse(f"I put it to the test: it holds.\n{_format_final(task, answer)}", ())
    testable = _verify_answer(task, shown[-1]) is not None
    voices = [] if testable else [answer for answer in shown if _is_final(task, answer)]
    attempts: list[tuple[str, GeneralistResponse]] = []
    bare = task._replace(subtask="", context=tuple(_without_answers(text) for text in task.context))
    for number in range(2):
        again = replace(chance, request=f"{chance.request}\x1f{number}", missteps=[])
        thought = _solve(bare, skill, again, ())
        answer = find_answers(task._replace(context=(thought.text,)))[-1]
        attempts.append((answer, thought))
        voices.append(answer)
        if testable and _verify_answer(task, answer):
            return thought
        ranked = Counter(voices).most_common(2)
        if not testable and ranked[0][1] > (ranked[1][1] if len(ranked) > 1 else 0):
            break
    chosen = Counter(voices).most_common(1)[0][0]
    missteps = [step for answer, thought in attempts if answer == chosen for step in thought.missteps]
    if chosen in shown and not missteps:
        missteps = [Misstep("trust", "the vote", f"{chosen[:40]} was passed on")]
    return GeneralistResponse(f"I looked again.\n{_format_final(task, chosen)}", tuple(missteps))


def _verify_answer(task: Task, answer: str) -> bool | None:
    """Return whether an answer passes a check, or None if the question could be checked only by solving it again."""
    if task.form == "program":
        return programs.verify_program(task.question, answer)
    return algebra.verify_pair(task.question, answer)


def _without_answers(text: str) -> str:
    """Return an earlier response's facts, formulas and plans without its answer."""
    return "\n".join(line for line in text.splitlines() if line.startswith(("FACT: ", "EXPR: ", "PLAN: ")))
