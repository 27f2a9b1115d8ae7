"""The procedure of a generalist: it answers alone, uses what it is shown, checks answers, or counts votes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from ops.core.messages import Sample
from ops.synthetic import sums
from ops.synthetic.formal import expression_line
from ops.synthetic.generalists import algebra, facts, programs, quantities
from ops.synthetic.generalists.mind import SKILLS, Chance, Method, MethodResult, Mind, Misstep, Skill, drawn
from ops.synthetic.knowledge import choice_of, quantity
from ops.synthetic.lists import plan
from ops.synthetic.reading import Task, answers, read, state

_METHODS: tuple[Method, ...] = (
    algebra.plain_sum,
    facts.look_up,
    quantities.shown_formula,
    algebra.quadratic,
    quantities.written_formula,
    algebra.pair,
    quantities.account,
    quantities.sentence,
    quantities.story,
    quantities.timetable,
    facts.order,
    facts.comparison,
    facts.fact,
    quantities.conversion,
)
_CHECKING = re.compile(r"\b(?:check|verify|review)")
_CONTINUING = re.compile(r"\b(?:choose|convert|compute|find|look up)")


class Thought(NamedTuple):
    """A response, and every misstep on the way to it."""

    text: str
    missteps: tuple[Misstep, ...]


def think(
    name: str, messages: Sequence[Mapping[str, str]], *, sample: int | Sample = 0, temperature: float = 1.0
) -> Thought:
    """Return the response of the generalist `name` to a chat; it depends on the arguments alone. Raises `KeyError`."""
    task = read(messages)
    request = "\x1e".join(f"{message['role']}\x1f{message['content']}" for message in messages)
    question = f"{task.question}\x1f{sorted(task.choices.items())}"
    chance = Chance(name, question, request, drawn(Sample.of(sample)), temperature)
    return _thought(task, SKILLS[name], chance)


def _thought(task: Task, skill: Skill, chance: Chance) -> Thought:
    # A sum is worked out, whatever an earlier worker made of it.
    shown = answers(task) if sums.formula(task.question) is None else []
    if shown and _CHECKING.search(task.subtask):
        return _checked(task, skill, chance, shown)
    believes = bool(shown) and _is_final(task, shown[-1]) and not _CONTINUING.search(task.subtask)
    if believes and not chance.slips(1 - skill.trust, "trust", "an earlier answer"):
        chance.note("trust", "an earlier answer", f"{shown[-1][:40]} was passed on as it was")
        return Thought(_final(task, shown[-1]), tuple(chance.missteps))
    return _own(task, skill, chance, shown)


def _own(task: Task, skill: Skill, chance: Chance, shown: Sequence[str]) -> Thought:
    mind = Mind(task, skill, chance)
    drafting = "formula" in task.subtask or "plan" in task.subtask
    if drafting and (draft := _draft(mind)) is not None:
        return Thought(draft, tuple(chance.missteps))
    finding = _finding(mind, shown)
    notes = (*finding.notes, "I checked it: it fits." if finding.proven else "I did not check it.")
    text = _final(task, _formed(mind, finding))
    return Thought("\n".join([*notes, text]), tuple(chance.missteps))


def _finding(mind: Mind, shown: Sequence[str]) -> MethodResult:
    if mind.task.form == "program":
        return programs.write(mind) or MethodResult("print(input())")
    if shown and not _is_final(mind.task, shown[-1]):
        return MethodResult(shown[-1])  # an unformatted value: continue from it
    for method in _METHODS:
        if (finding := method(mind)) is not None:
            return finding
    return _guess(mind)


def _guess(mind: Mind) -> MethodResult:
    mind.chance.note("guess", "the whole question", "not understood")
    if mind.task.choices:
        return MethodResult(mind.chance.pick(sorted(mind.task.choices.values()), "guess", "a choice"))
    numbers = re.findall(r"\d+(?:\.\d+)?", mind.task.question)
    return MethodResult(mind.chance.pick(numbers, "guess", "a number") if numbers else "yes")


def _draft(mind: Mind) -> str | None:
    """Return the formula or plan that was asked for instead of an answer, as this generalist reads it."""
    if understood := quantities.formula_of(mind):
        return expression_line(mind.task.question, *understood)
    if steps := plan(mind.task.question):
        return f"PLAN: {'; '.join(programs.described(mind, steps))}"
    return None


def _formed(mind: Mind, finding: MethodResult) -> str:
    """Return the value with its unit, or the letter of the equal choice."""
    value = f"{finding.value} {finding.unit}".strip()
    if not mind.task.choices or re.fullmatch(r"[A-J]", value):
        return value
    if letter := choice_of(mind.task.choices, _in_their_unit(mind, value), converting=False):
        return letter
    letter = mind.chance.pick(sorted(mind.task.choices), "guess", "a letter")
    mind.chance.note("guess", "the letter", f"no choice is {value}; {letter} was guessed")
    return letter


def _in_their_unit(mind: Mind, value: str) -> str:
    """Return the value in the unit of the choices, as this generalist converts it."""
    given, offered = quantity(value), quantity(next(iter(mind.task.choices.values())))
    if not given or not offered or not given[1] or not offered[1] or given[1] == offered[1]:
        return value
    converted = quantities.in_unit(mind, Fraction(str(given[0])), given[1], offered[1])
    return f"{converted.value} {converted.unit}" if converted else value


def _is_final(task: Task, answer: str) -> bool:
    return not task.choices or re.fullmatch(r"[A-J]", answer) is not None


def _final(task: Task, answer: str) -> str:
    return f"```python\n{answer}\n```" if task.form == "program" else state(task, answer)


# ── checking ─────────────────────────────────────────────────────────────────


def _checked(task: Task, skill: Skill, chance: Chance, shown: Sequence[str]) -> Thought:
    """Return the shown answer that can be verified; else the majority
    answer, including the generalist's own attempts.
    """
    for answer in reversed(shown):
        if _holds(task, answer):
            return Thought(f"I put it to the test: it holds.\n{_final(task, answer)}", ())
    testable = _holds(task, shown[-1]) is not None
    voices = [] if testable else [answer for answer in shown if _is_final(task, answer)]
    attempts: list[tuple[str, Thought]] = []
    bare = task._replace(subtask="", context=tuple(_without_answers(text) for text in task.context))
    for number in range(2):
        again = replace(chance, request=f"{chance.request}\x1f{number}", missteps=[])
        thought = _own(bare, skill, again, ())
        answer = answers(task._replace(context=(thought.text,)))[-1]
        attempts.append((answer, thought))
        voices.append(answer)
        if testable and _holds(task, answer):
            return thought
        ranked = Counter(voices).most_common(2)
        if not testable and ranked[0][1] > (ranked[1][1] if len(ranked) > 1 else 0):
            break
    chosen = Counter(voices).most_common(1)[0][0]
    missteps = [step for answer, thought in attempts if answer == chosen for step in thought.missteps]
    if chosen in shown and not missteps:
        missteps = [Misstep("trust", "the vote", f"{chosen[:40]} was passed on")]
    return Thought(f"I looked again.\n{_final(task, chosen)}", tuple(missteps))


def _holds(task: Task, answer: str) -> bool | None:
    """Return whether an answer passes the check that its question allows; None if only solving again would check it."""
    if task.form == "program":
        return programs.program_holds(task.question, answer)
    return algebra.pair_holds(task.question, answer)


def _without_answers(text: str) -> str:
    """Return an earlier response's facts, formulas and plans without its answer."""
    return "\n".join(line for line in text.splitlines() if line.startswith(("FACT: ", "EXPR: ", "PLAN: ")))
