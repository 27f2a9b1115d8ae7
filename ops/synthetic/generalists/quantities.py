"""Methods for word problems about formulas, stories, possessions of several people, times of day and units."""

from __future__ import annotations

import re
from fractions import Fraction

from ops.synthetic import formal, sums
from ops.synthetic.formula import NotAFormula, format_latex
from ops.synthetic.generalists.algebra import apply_misstep, evaluate_formula, format_decimal, format_number
from ops.synthetic.generalists.skills import GeneralistTask, MethodResult
from ops.synthetic.knowledge import convert_unit, find_entities, units
from ops.synthetic.phrases import FORMULAS, QUESTION, STORY, FormulaPhrase, find_clauses, find_phrases, run_clauses

_SWAPPED = {"+": "-", "-": "+", "*": "+", "/": "*"}
_CONTRARY = {"+": "-", "-": "+", "*": "/", "/": "*"}
_SIGN = re.compile(r"(?<!\*)[-+*/](?!\*)")


def evaluate_shown_formula(mind: GeneralistTask) -> MethodResult | None:
    """Evaluate the formula that an earlier worker wrote."""
    shown = formal.read_formula(mind.task)
    return _evaluate(mind, *shown) if shown else None


def evaluate_written_formula(mind: GeneralistTask) -> MethodResult | None:
    """Evaluate a formula between dollar signs that has no variable."""
    body = formal.find_formula(mind.task.question)
    if body is None or re.search(r"[a-z]", body):
        return None
    return _evaluate(mind, re.sub(r"\d+", _NumberReader(mind), body), "")


def evaluate_sentence(mind: GeneralistTask) -> MethodResult | None:
    """Evaluate a sentence that represents a formula."""
    understood = understand_formula(mind)
    if understood is None:
        return None
    body, unit = understood
    return _evaluate(mind, body, unit)


def understand_formula(mind: GeneralistTask) -> tuple[str, str] | None:
    """Return the formula and the unit that this generalist reads in a sentence, or None if it reads none."""
    if body := sums.find_sum(mind.task.question):
        return body, ""
    for formula in FORMULAS:
        if match := re.search(formula.pattern, mind.task.question, re.IGNORECASE):
            return _fill_formula(mind, formula, match), formula.unit
    return None


def _fill_formula(mind: GeneralistTask, formula: FormulaPhrase, match: re.Match[str]) -> str:
    values = {name: _read_value(mind, index, text) for index, (name, text) in enumerate(match.groupdict().items())}
    if formula.needs:
        names = find_entities(mind.task.question)
        values["fact"] = (mind.recall_fact(names[0], formula.needs) if names else None) or "1"
    body = formula.body
    signs = [match.start() for match in _SIGN.finditer(body)]
    if signs and mind.is_misread(len(values), formula.body):
        at = mind.missteps.choose(signs, "reading", formula.body)
        changed = body[:at] + _SWAPPED[body[at]] + body[at + 1 :]
        mind.missteps.record_misstep("reading", "the sentence's sense", f"{body} was understood as {changed}")
        body = changed
    return body.format(**values)


def _read_value(mind: GeneralistTask, index: int, text: str) -> str:
    return mind.read_number(index, text) if text[0].isdigit() else text


def solve_story(mind: GeneralistTask) -> MethodResult | None:
    """Solve a story about one quantity and its changes."""
    spoken = find_phrases(mind.task.question, STORY)
    if len(spoken) < 2:
        return None
    value, notes = Fraction(0), []
    for index, clause in enumerate(spoken):
        clause = _read_story_clause(mind, index, clause)
        if not clause:
            continue
        notes.append(clause)
        if clause[0] not in "+-*/":
            value = Fraction(clause)
            continue
        amount = Fraction(clause[1:])
        act = {"+": value + amount, "-": value - amount, "*": value * amount, "/": value / (amount or 1)}
        value = apply_misstep(act[clause[0]], f"{format_number(value)}{clause}", mind.skill, mind.missteps)
    return MethodResult(format_number(value), "", (f"I read {', '.join(notes)}.",))


def _read_story_clause(mind: GeneralistTask, index: int, clause: str) -> str:
    """Return a clause as the generalist reads it, which may be overlooked, reversed or have another number."""
    if not mind.is_misread(index, clause):
        return clause
    how = mind.missteps.choose(("overlooked", "contrary", "number"), "reading", f"clause {index + 1}")
    if clause[0] not in _CONTRARY or how == "number":
        sign, digits = (clause[0], clause[1:]) if clause[0] in _CONTRARY else ("", clause)
        seen = sign + str(int(digits) + mind.missteps.choose((-1, 1, 2, 10), "reading", clause))
    elif how == "contrary":
        seen = _CONTRARY[clause[0]] + clause[1:]
    else:
        seen = ""
    mind.missteps.record_misstep("reading", f"clause {index + 1}", f"{clause} was read as {seen or 'nothing'}")
    return seen


def solve_account(mind: GeneralistTask) -> MethodResult | None:
    """Compute what several people own from the clauses of the question or from the plan of an earlier worker."""
    asked_of = re.search(QUESTION, mind.task.question)
    if asked_of is None:
        return None
    shown = formal.read_plan(mind.task)
    steps = shown or [
        _read_account_clause(mind, index, clause) for index, clause in enumerate(find_clauses(mind.task.question))
    ]
    steps = [step for step in steps if step]

    def act(value: Fraction, operation: str) -> Fraction:
        return apply_misstep(value, operation, mind.skill, mind.missteps)

    owned = run_clauses(steps, act)
    name = asked_of[1].lower()
    if name not in owned:
        return None
    return MethodResult(format_number(owned[name]), "", (f"I read {'; '.join(steps)}.",))


def _read_account_clause(mind: GeneralistTask, index: int, clause: str) -> str:
    if not mind.is_misread(index, clause):
        return clause
    numbers = re.findall(r"\d+", clause)
    how = mind.missteps.choose(("contrary", "number") if numbers else ("contrary",), "reading", f"clause {index + 1}")
    if how == "number":
        seen = clause.replace(
            numbers[-1], str(int(numbers[-1]) + mind.missteps.choose((-1, 1, 2, 10), "reading", clause))
        )
    elif re.search(r" [+-] ", clause):
        seen = re.sub(r" ([+-]) ", lambda match: f" {_CONTRARY[match[1]]} ", clause)
    else:
        seen = "" if "->" in clause else clause.replace("2 *", "1 *")
    mind.missteps.record_misstep("reading", f"clause {index + 1}", f"{clause} was read as {seen or 'nothing'}")
    return seen


_CLOCK = re.compile(r"at (\d{1,2}):(\d\d)")
_SPAN = re.compile(r"(?:(\d+) hours?)?(?: and )?(?:(\d+) minutes)")


def solve_timetable(mind: GeneralistTask) -> MethodResult | None:
    """Compute a time of day after several durations."""
    start = _CLOCK.search(mind.task.question)
    if start is None or "minutes" not in mind.task.question:
        return None
    now = int(start[1]) * 60 + int(mind.read_number(0, start[2].lstrip("0") or "0"))
    notes = [f"start {start[0]}"]
    for index, match in enumerate(_SPAN.finditer(mind.task.question, start.end()), start=1):
        if mind.is_misread(index, match[0]):
            wrong = mind.missteps.choose((0, 10, 30, 60), "reading", match[0])
            stretch = abs(int(match[1] or 0) * 60 + int(match[2]) - wrong) if wrong else 0
            mind.missteps.record_misstep(
                "reading", f"clause {index + 1}", f"{match[0].strip()} was read as {stretch} minutes"
            )
        else:
            stretch = int(match[1] or 0) * 60 + int(match[2])
        notes.append(f"+{stretch}")
        # An hour has sixty minutes, so errors occur at carries.
        total = Fraction(now + stretch)
        if (now % 60) + (stretch % 60) >= 60 and mind.missteps.has_misstep(
            mind.skill.arithmetic, "arithmetic", f"carry {now}+{stretch}"
        ):
            mind.missteps.record_misstep("arithmetic", f"{now}+{stretch} minutes", "an hour was not carried")
            total -= 60
        now = int(total)
    return MethodResult(f"{now // 60 % 24}:{now % 60:02d}", "", (f"I read {', '.join(notes)}.",))


_QUANTITY = re.compile(r"(-?\d+(?:\.\d+)?)\s*([A-Za-z]+(?:\^\d)?)")


def convert_quantity(mind: GeneralistTask) -> MethodResult | None:
    """Convert a quantity to another unit."""
    goal = re.search(r"\b(?:in|to|into) ([A-Za-z]+)", mind.task.question)
    given = next((match for match in _QUANTITY.finditer(mind.task.question) if match[2] in units()), None)
    if given is None or goal is None or goal[1] not in units():
        return None
    return convert_to_unit(mind, Fraction(mind.read_number(0, given[1])), given[2], goal[1])


def convert_to_unit(mind: GeneralistTask, value: Fraction, unit: str, target: str) -> MethodResult | None:
    """Return `value` in another unit, as this generalist converts it."""
    number = convert_unit(float(value), unit, target)
    if number is None:
        return None
    if mind.missteps.has_misstep(mind.skill.units, "units", f"{unit} in {target}"):
        wrong = number * mind.missteps.choose((0.1, 10.0, 100.0), "units", f"{unit} in {target}")
        mind.missteps.record_misstep(
            "units", f"{format_decimal(value)} {unit} in {target}", f"{number:g} became {wrong:g}"
        )
        number = wrong
    return MethodResult(f"{number:.4f}".rstrip("0").rstrip("."), units()[target].name)


class _NumberReader:
    """Reads the numbers of a text one after another, each of which may be misread."""

    def __init__(self, mind: GeneralistTask) -> None:
        self._mind, self._index = mind, 0

    def __call__(self, match: re.Match[str]) -> str:
        self._index += 1
        return self._mind.read_number(self._index - 1, match[0])


def _evaluate(mind: GeneralistTask, body: str, unit: str) -> MethodResult | None:
    try:
        value = evaluate_formula(body, mind.skill, mind.missteps)
    except NotAFormula:
        return None
    text = format_latex(value) if mind.task.form == "boxed" else format_decimal(value)
    return MethodResult(text, unit, (f"I work out {body}.",))
