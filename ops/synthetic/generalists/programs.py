"""Programs: from a shown plan or formula, from a description, or by search on examples."""

from __future__ import annotations

from collections.abc import Sequence

from ops.synthetic.formal import function, shown_function, shown_plan, signature
from ops.synthetic.generalists.mind import MethodResult, Mind
from ops.synthetic.generalists.quantities import formula_of
from ops.synthetic.lists import OPERATIONS, ListExample, apply, examples, plan, program

_DEEPEST = 3


def write(mind: Mind) -> MethodResult | None:
    """Write a program from the most reliable source that is available."""
    if source := shown_function(mind.task):
        return MethodResult(source)
    shown = shown_plan(mind.task)
    if shown and all(step in OPERATIONS for step in shown):
        return MethodResult(
            program([_written(mind, index, step) for index, step in enumerate(shown)], mind.task.question)
        )
    if (named := signature(mind.task.question)) and (understood := formula_of(mind)):
        return MethodResult(function(*named, understood[0]))
    if steps := plan(mind.task.question):
        return MethodResult(program(described(mind, steps), mind.task.question))
    if given := examples(mind.task.question):
        return _searched(mind, given)
    return None


def described(mind: Mind, steps: Sequence[str]) -> list[str]:
    """Return the operations of a description as they are read and then written."""
    seen = []
    for index, step in enumerate(steps):
        if mind.misreads(index, step):
            how = mind.chance.pick(("overlooked", *sorted(OPERATIONS)), "reading", f"clause {index + 1}")
            mind.chance.note("reading", f"clause {index + 1}", f"{step} was read as {how}")
            if how != "overlooked":
                seen.append(how)
        else:
            seen.append(step)
    return [_written(mind, index, step) for index, step in enumerate(seen)]


def _written(mind: Mind, index: int, step: str) -> str:
    if not mind.chance.slips(mind.skill.programming, "programming", f"operation {index + 1}: {step}"):
        return step
    other = mind.chance.pick(sorted(set(OPERATIONS) - {step}), "programming", f"operation {index + 1}")
    mind.chance.note("programming", f"operation {index + 1}", f"{step} was written as {other}")
    return other


def _searched(mind: Mind, given: Sequence[ListExample]) -> MethodResult:
    """Return the first program that fits the examples, within a budget of short and then of random programs."""
    tries = mind.chance.random("search", "a program")
    names = sorted(OPERATIONS)
    for _ in range(mind.skill.search):
        steps = [tries.choice(names) for _ in range(tries.randint(1, _DEEPEST))]
        if all(apply(steps, example.given) == example.wanted for example in given):
            return MethodResult(program(steps, mind.task.question), proven=True)
    mind.chance.note("search", f"{mind.skill.search} programs", "none fits the examples; the last one is used")
    return MethodResult(program(steps, mind.task.question))


def program_holds(question: str, source: str) -> bool | None:
    """Return whether a program of known operations satisfies the question's examples; None without examples."""
    given = examples(question)
    if not given:
        return None
    steps = [
        next((name for name, line in OPERATIONS.items() if line == text.strip()), "") for text in source.splitlines()
    ]
    known = [step for step in steps if step]
    return bool(known) and all(apply(known, example.given) == example.wanted for example in given)
