"""Methods that write a program from a plan, a formula or a description, or find one by search on examples."""

from __future__ import annotations

from collections.abc import Sequence

from ops.synthetic.formal import find_signature, format_function, read_function, read_plan
from ops.synthetic.generalists.quantities import understand_formula
from ops.synthetic.generalists.skills import GeneralistTask, MethodResult
from ops.synthetic.lists import OPERATIONS, ListExample, apply_operations, find_examples, find_operations, write_program

_DEEPEST = 3


def write_answer_program(mind: GeneralistTask) -> MethodResult | None:
    """Write a program from the most reliable source that is available."""
    if source := read_function(mind.task):
        return MethodResult(source)
    shown = read_plan(mind.task)
    if shown and all(step in OPERATIONS for step in shown):
        return MethodResult(
            write_program([_write_operation(mind, index, step) for index, step in enumerate(shown)], mind.task.question)
        )
    if (named := find_signature(mind.task.question)) and (understood := understand_formula(mind)):
        return MethodResult(format_function(*named, understood[0]))
    if steps := find_operations(mind.task.question):
        return MethodResult(write_program(read_operations(mind, steps), mind.task.question))
    if given := find_examples(mind.task.question):
        return _search_program(mind, given)
    return None


def read_operations(mind: GeneralistTask, steps: Sequence[str]) -> list[str]:
    """Return the operations of a description as they are read and then written."""
    seen = []
    for index, step in enumerate(steps):
        if mind.is_misread(index, step):
            how = mind.missteps.choose(("overlooked", *sorted(OPERATIONS)), "reading", f"clause {index + 1}")
            mind.missteps.record_misstep("reading", f"clause {index + 1}", f"{step} was read as {how}")
            if how != "overlooked":
                seen.append(how)
        else:
            seen.append(step)
    return [_write_operation(mind, index, step) for index, step in enumerate(seen)]


def _write_operation(mind: GeneralistTask, index: int, step: str) -> str:
    if not mind.missteps.has_misstep(mind.skill.programming, "programming", f"operation {index + 1}: {step}"):
        return step
    other = mind.missteps.choose(sorted(set(OPERATIONS) - {step}), "programming", f"operation {index + 1}")
    mind.missteps.record_misstep("programming", f"operation {index + 1}", f"{step} was written as {other}")
    return other


def _search_program(mind: GeneralistTask, given: Sequence[ListExample]) -> MethodResult:
    """Return the first program that fits the examples, within a budget of short and then of random programs."""
    tries = mind.missteps.random_stream("search", "a program")
    names = sorted(OPERATIONS)
    for _ in range(mind.skill.search):
        steps = [tries.choice(names) for _ in range(tries.randint(1, _DEEPEST))]
        if all(apply_operations(steps, example.given) == example.wanted for example in given):
            return MethodResult(write_program(steps, mind.task.question), is_verified=True)
    mind.missteps.record_misstep(
        "search", f"{mind.skill.search} programs", "none fits the examples; the last one is used"
    )
    return MethodResult(write_program(steps, mind.task.question))


def verify_program(question: str, source: str) -> bool | None:
    """Return whether a program satisfies the examples of a question, or None if the question has no examples."""
    given = find_examples(question)
    if not given:
        return None
    steps = [
        next((name for name, line in OPERATIONS.items() if line == text.strip()), "") for text in source.splitlines()
    ]
    known = [step for step in steps if step]
    return bool(known) and all(apply_operations(known, example.given) == example.wanted for example in given)
