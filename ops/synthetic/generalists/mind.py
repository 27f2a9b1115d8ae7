"""What every method of a generalist needs: the task, its skills, its chance, and its senses."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ops.synthetic.formal import facts
from ops.synthetic.generalists.chance import Chance, memory
from ops.synthetic.generalists.skill import Skill
from ops.synthetic.knowledge import entities
from ops.synthetic.reading import Task

CLAUSES_PER_DOUBLED_ERROR = 6
"""Clauses after which the probability of misreading has doubled."""


class MethodResult(NamedTuple):
    """A method's result for a question."""

    value: str
    """The answer before it has the form that is asked for, or a program."""
    unit: str = ""
    notes: tuple[str, ...] = ()
    """What was read and done, for the response."""
    proven: bool = False
    """The result was verified."""


@dataclass(frozen=True)
class Mind:
    """One generalist at one task."""

    task: Task
    skill: Skill
    chance: Chance

    def misreads(self, index: int, text: str) -> bool:
        """Whether clause `index` (from 0) is misread."""
        rate = self.skill.reading * (1 + index / CLAUSES_PER_DOUBLED_ERROR)
        return self.chance.slips(rate, "reading", f"clause {index + 1}: {text}")

    def numeral(self, index: int, text: str) -> str:
        """A number of the question as this reader sees it."""
        if not self.misreads(index, text):
            return text
        seen = self.chance.pick(_misread_numerals(text), "reading", text)
        self.chance.note("reading", f"clause {index + 1}", f"{text} was read as {seen}")
        return seen

    def recall(self, name: str, attribute: str) -> str | None:
        """A fact: from what it was shown, else from memory, else made up; None where there is no such fact."""
        for fact in reversed(facts(self.task)):
            if fact.attribute == attribute and fact.name.lower() == name.lower():
                return fact.value.split(" ")[0] if _is_number(fact.value.split(" ")[0]) else fact.value
        value = entities()[name].get(attribute)
        if value is None or self._knows(name, attribute):
            return value
        others = sorted({facts[attribute] for facts in entities().values() if attribute in facts})
        guess = self.chance.pick(others, "memory", f"{attribute} of {name}")
        self.chance.note("memory", f"{attribute} of {name}", f"{value} became {guess}")
        return guess

    def _knows(self, name: str, attribute: str) -> bool:
        """Memory does not change from one request to the next; what is widely known is known to most."""
        return memory(self.chance.worker, name, attribute) < self.skill.memory


Method = Callable[[Mind], MethodResult | None]
"""A way to answer; None where the question is not of its kind."""


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?", text) is not None


def _misread_numerals(text: str) -> list[str]:
    """Numbers that look like this one: a digit off, two digits swapped, the point elsewhere."""
    whole = text.partition(".")[0]
    similar = {str(int(whole) + delta) for delta in (-1, 1, 10) if int(whole) + delta > 0}
    if len(whole) > 1:
        similar.add(whole[:-2] + whole[-1] + whole[-2])
    return sorted(similar - {text}) or [f"{text}0"]
