"""Short text: words, quantities with units, yes and no, labelled options, and small lists of these.

A quantity must have the gold answer's unit, in any spelling or SI prefix. A number must equal the gold number when
rounded to the gold number's precision, or be the gold number rounded to fewer places, within 1 %; an integer must be
exact.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction
from typing import NamedTuple

from ops.core.problem import Grade, Problem
from ops.grading import dates, extract, labels, latex, numbers, numerals, sentences, units
from ops.grading.answering import extract_answer_part
from ops.grading.grader import Grader
from ops.grading.spelling import (
    has_same_words,
    is_same_text,
    list_symbols,
    normalize_spelling,
    normalize_words,
    split_tokens,
)

TOLERANCE = Fraction(1, 100)
"""Relative tolerance for an answer with fewer places than the gold number."""
MAX_CHARACTERS = 4_000

_SCALES = {
    "dozen": 12, "hundred": 100, "thousand": 10**3, "lakh": 10**5, "million": 10**6, "mn": 10**6, "crore": 10**7,
    "billion": 10**9, "bn": 10**9, "trillion": 10**12,
}  # fmt: skip
_SUFFIXES = {"k": "thousand", "m": "million", "b": "billion"}
"""Letters after an amount of money; after another number they are units."""
_ALTERING = re.compile(
    r"\b(?:times|squared|cubed|factorial|hal(?:f|ves)|thirds?|quarters?|(?:four|fif|six|seven|eigh|nin|ten)ths?|"
    r"hundredths?|thousandths?|and|plus|minus|over|to|through|more|less|pairs?|gross|scores?|fold|power|mod|modulo)\b|_|\b[a-z]\b"
)
"""Words and symbols after a number that change its value."""
_VARIABLE = re.compile(r"\d[a-fh-lopqrtu-z]", re.IGNORECASE)
"""A digit with a letter that is more likely a variable than a unit: 4t, 70x; not 5m, 5g, 5N or 5s."""
_LABEL = re.compile(r"\(?([A-Za-z0-9])\.?\)(?:[\s.:,]|-\s)*(?=(.*))|([A-Za-z])[.:](?:\s+(.*)|$)", re.S)
_BARE = re.compile(r"(?:option|choice)?\s*(?:\(?([A-Za-z0-9])\)|([A-Za-z0-9]))[.:]?", re.I)
_LABEL_LINES = re.compile(r"(?:[ \t*_]*\n[ \t*_]*(?:\([A-Ja-j]\)|[A-J](?:[).:](?=\s)|(?=[ \t*_]*(?:\n|$))))[^\n]*)+")
_USUAL_LABELS = "abcdefgh"
"""The usual labels; another one, such as the "(S)" of some benchmarks, may be a part of the text or a Roman numeral."""
_LETTERS = re.compile(r"(?:\([a-z]\)|[a-z]\)?)(?:(?:,| and|, and| &)\s*(?:\([a-z]\)|[a-z]\)?))*", re.I)
_APPROXIMATELY = re.compile(
    r"^(?:in(?: the year)?(?= \d)|approximately|approx\.?|about|around|roughly|nearly|~|≈|=|is|equals?)\s*", re.I
)
_QUANTITY = re.compile(
    r"(?P<sign>[-+]?)\s*(?P<currency>US\$|USD|EUR|GBP|JPY|INR|\$|€|£|¥|₹|Rs\.?)?\s*"
    r"(?P<number>[-+]?(?:\d+(?:,\d{3})+|\d+)?(?:\.\d+)?(?:[eE][-+]?\d{1,3})?"
    r"(?:\s*[x×*·]\s*10\s*\^\([-+]?\d{1,3}\))?(?:\s*/\s*\d+(?:\.\d+)?)?)"
    r"(?![\d]|[.,]\d)\s*(?P<rest>.*)",
    re.S,
)
_ASSIGNED = re.compile(r"([A-Za-z][\w*' ]{0,30}?)\s*(?:=|(?=≈))\s*(?=[^=])(.*)", re.S)
"""A name and its value, which keeps the sign of an approximation."""
_SECOND = re.compile(r"\b(?:or|and|to)\s+[-+$€£]?\d|^[^,;(]*[^\W\d]\s+\d", re.IGNORECASE)
"""Signs of a second number after a number: a hedge, a range, a list or a sum ("3 hours 20 minutes")."""
_ABOUT = re.compile(r"(?:=\s*)?[~≈]")
"""A sign that the number behind it is rounded."""
_NOT_PROSE = re.compile(r"[^\w\s.,:;?'\"()/-]")
_NOUN = re.compile(r"(?:(?!or\b)[^\W\d_](?:[^\W\d_]|[\s'\".,:;()/-])*)?")
"""A counted noun, and what may follow a unit: words and the punctuation between them, but no operator."""
_SIGNS = {
    "%": re.compile(
        r"%|per ?cent|\b(?:rate|share|proportion|fraction|ratio|probabilit|chance|return|yield|margin|growth|"
        r"inflation)",
        re.I,
    ),
    "°": re.compile(r"°|\b(?:degree|angle|temperature|latitude|longitude|bearing|slope)", re.I),
}  # fmt: skip
"""Signs that change a number's value, and the words of a question that ask for a number with them."""
_MINUS = re.compile(r"^(?:minus|negative)\s+(?=[\d.$€£])", re.IGNORECASE)
_SAID = re.compile(r"\b(?:is|are|was|be|equals|of|by|to|at|=|approximately|about)\s+(?=[-+$€£¥]?\s*[\d.])")
_TRUTH = {
    "true": "true",
    "t": "true",
    "false": "false",
    "f": "false",
    "yes": "yes",
    "y": "yes",
    "no": "no",
    "n": "no",
}
_OR = re.compile(r"\bor\b")
_SEPARATOR = re.compile(r"(?P<bracket>[(\[{)\]}])|\s*(?:;|\n+|,(?!\d{3}\b)|\band\b|\bor\b)\s*")
_MONEY = tuple(((name, 1),) for name in ("dollar", "euro", "pound", "rupee"))
"""Dimensions of the currencies that have hundredths."""
_CURRENCIES = {"US$": "$", "USD": "$", "Rs": "rupee", "Rs.": "rupee"}


_QUOTED = re.compile(r"[\"“]((?:[^\"“”\\\n]|\\.){1,500})[\"”]\s*(?:[,}\]].*)?$", re.DOTALL)


class Quantity(NamedTuple):
    """A number with its unit: `number` is as written, and `value` is in the unit's base.

    `unit` is None for a number without a unit or with only a counted `noun`. `step` is the value of the last place of
    `number`; it is 0 if there are no places, as in 2/3.
    """

    number: Fraction
    value: Fraction
    unit: units.Unit | None
    noun: str
    is_integer: bool
    step: Fraction


def find_answer(problem: Problem, response: str) -> str:
    """Return what the last "Answer:", box or tag states; otherwise the last "the answer is", otherwise the last line.

    A later sentence that corrects the statement replaces it. If the gold answer has several lines, all following text
    counts.
    """
    text = extract.remove_html(extract_answer_part(response, lambda before: bool(extract.find_statements(before))))
    if "\n" in problem.answer.strip() and (several := extract.extract_text_after_announcement(text)):
        return several
    statements = extract.find_statements(text)
    formal = [statement for statement in statements if statement.is_formal]
    if not statements:
        return extract.extract_last_line(text)
    stated = (formal or statements)[-1]
    if extract.CORRECTION.search(text, stated.end, max(stated.end, statements[-1].start)):
        stated = statements[-1]
    line = extract.remove_answer_phrase(stated.text)
    quoted = _QUOTED.match(line)
    answer = quoted[1] if quoted else line
    return answer + _read_labels_below(text, stated.end) if _letter(answer) else answer


def grade_answer(problem: Problem, answer: str) -> Grade:
    """Compare `answer` with the gold answer."""
    if not answer.strip():
        return Grade(0.0, "", "no answer found")
    if len(answer) > MAX_CHARACTERS and len(answer) > 2 * len(problem.answer):
        return Grade(0.0, answer[:200], "far longer than an answer")
    if is_same_answer(problem.answer, answer, problem.question):
        return Grade(1.0, answer, "equal")
    return Grade(0.0, answer, f"not equal to {problem.answer[:80]}")


def is_same_answer(gold: str, answer: str, question: str = "") -> bool:
    """Return whether two short answers have the same meaning; `question` says which unit a gold number without one
    has."""
    gold, answer = normalize_spelling(gold), normalize_spelling(answer)
    if not gold or not answer:
        return False
    if (_LETTERS.fullmatch(gold) or _label(gold)) and _offers_more_labels(gold, answer):
        return False
    readings = (answer, *map(normalize_spelling, sentences.list_shorter_readings(answer)))
    return any(_is_same_reading(gold, reading, question) for reading in readings)


def _is_same_reading(gold: str, answer: str, question: str) -> bool:
    if gold == answer:
        return True
    if _LETTERS.fullmatch(gold):
        return _is_same_letters(gold, answer)
    if (label := _label(gold)) is not None:
        return _is_same_labelled(label, answer, question)
    if normalize_words(gold) in _TRUTH:
        return _is_same_truth_value(gold, answer)
    if (ratio := numerals.parse_ratio(gold)) is not None and numerals.parse_ratio(answer) == ratio:
        return True
    if (wanted := parse_quantity(gold)) is not None:
        is_exact = wanted.is_integer and wanted.unit is None
        alike = not is_exact or (_ABOUT.match(gold) is None) == (_ABOUT.match(answer) is None)
        return alike and _is_same_quantity(wanted, answer, question)
    if is_same_text(gold, answer) or _is_abbreviation(gold, answer):
        return True
    if (date := dates.parse_date(gold)) is not None:
        return dates.parse_date(answer) == date
    return _is_same_parts(gold, answer, question) or _is_same_assigned(gold, answer, question)


# ── sentences ────────────────────────────────────────────────────────────────


def _is_abbreviation(gold: str, answer: str) -> bool:
    """Return whether the answer is either half of a gold answer such as "World Health Organization (WHO)"."""
    match = re.fullmatch(r"([^()]+?)\s*\(([^()]+)\)", gold)
    if match is None:
        return False
    initials = "".join(word[0] for word in normalize_words(match[1]).split() if word not in ("of", "and", "for", "in"))
    return normalize_words(match[2]) == initials and any(is_same_text(half, answer) for half in match.groups())


# ── labels, letters and truth ────────────────────────────────────────────────


def _label(text: str) -> tuple[str, str] | None:
    """Return ("d", "the long run") for "(D) the long run" or "d. the long run"."""
    match = _LABEL.match(text)
    if match is None:
        return None
    return (match.group(1) or match.group(3)).lower(), (match.group(2) or match.group(4) or "").strip()


def _read_labels_below(text: str, position: int) -> str:
    """Return the lines directly below an answer that begin with a label, as it does."""
    match = _LABEL_LINES.match(text, position)
    return match[0] if match else ""


def _offers_more_labels(gold: str, answer: str) -> bool:
    """Return whether an answer offers more labels than the gold answer, whose own text may name some."""
    label, own = _label(gold), _label(answer)
    text = label[1] if label else ""
    if (
        is_same_text(gold, answer)
        or (text and is_same_text(text, own[1] if own else answer))
        or len(re.findall(r"\b[A-Za-z]\b", gold)) > 1 > len(text)
    ):
        return False
    start = answer.casefold().find(text.casefold()) if text else -1
    if start >= 0:
        answer = f"{answer[:start]}{labels.CHOICE_PLACEHOLDER}{answer[start + len(text) :]}"
    return labels.offers_several_labels(answer, _USUAL_LABELS.upper())


def _is_same_letters(gold: str, answer: str) -> bool:
    wanted: list[str] = re.findall(r"\b[a-z]\b", gold.lower())
    if len(wanted) == 1:
        return _letter(answer) == wanted[0]
    told_letters = re.findall(r"\b[a-z]\b", answer.lower())
    return _LETTERS.fullmatch(answer) is not None and sorted(told_letters) == sorted(wanted)


def _letter(answer: str) -> str:
    """Return the letter of an answer that is a label, alone or before its text; "" for any other answer."""
    if label := _label(answer):
        return label[0]
    bare = _BARE.fullmatch(answer.strip())
    return str(bare[1] or bare[2]).lower() if bare else ""


def _is_same_labelled(gold: tuple[str, str], answer: str, question: str) -> bool:
    letter, text = gold
    label = _label(answer)
    if label is None and (bare := _letter(answer)):
        label = (bare, "")
    # An unusual gold label is ignored, and the text after it decides.
    if label is not None and letter in _USUAL_LABELS and label[0] in _USUAL_LABELS:
        return label[0] == letter and not _texts_contradict(text, label[1], question)
    if label is not None and not label[1]:
        return label[0] == letter and letter in f"{_USUAL_LABELS}0123456789"
    if not text:
        return False
    inner = _label(text)
    texts = (text, inner[1]) if inner and inner[1] else (text,)
    return any(is_same_answer(t, label[1] if label and label[1] else answer, question) for t in texts)


def _texts_contradict(gold: str, answer: str, question: str) -> bool:
    """Return whether the texts after equal letters contradict each other, so that the letter does not decide.

    They do if they are two different numbers, or the same words with other symbols, as `x ≤ 3` and `x ≥ 3` are.
    """
    numbers_both = all(parse_quantity(normalize_spelling(text)) is not None for text in (gold, answer))
    if numbers_both:
        return not is_same_answer(gold, answer, question)
    words = [[token for token in split_tokens(text) if token[0].isalnum()] for text in (gold, answer)]
    return bool(words[0]) and has_same_words(*words) and not is_same_text(gold, answer)


def _is_same_truth_value(gold: str, answer: str) -> bool:
    wanted = _TRUTH[normalize_words(gold)]
    label = _label(answer)
    word = normalize_words(label[1] if label and label[1] and len(label[0]) == 1 and label[0] not in "tfyn" else answer)
    if word in _TRUTH:
        return _TRUTH[word] == wanted
    # "False, since …" and "No it is not": the first word decides if a stop or a new clause follows it.
    first = re.match(
        r"([A-Za-z]+)\s*(?:[.,;:!—]|-\s|(?:because|since|it|they|this|that|there|he|she|we)\b|$)",
        answer,
    )
    return first is not None and len(first.group(1)) > 1 and _TRUTH.get(first.group(1).lower()) == wanted


# ── quantities ───────────────────────────────────────────────────────────────


def parse_quantity(text: str) -> Quantity | None:
    """Return `text` as one number with its unit or noun; None if it is anything else."""
    text = _APPROXIMATELY.sub("", text.strip())
    match = _QUANTITY.fullmatch(text)
    if match is None or not match.group("number"):
        return _read_quantity_in_words(text)
    number = re.sub(r"[\s()]+", "", match.group("number"))
    if (value := numbers.parse_number(number)) is None:
        return None
    rest = match.group("rest").strip().rstrip(".").strip()
    is_difference = rest.startswith("-") and text[match.start("rest") - 1].isspace()
    if is_difference or _SECOND.search(rest) or rest.count("(") != rest.count(")"):
        return None
    if match.group("currency") and rest.lower() in _SUFFIXES:
        rest = _SUFFIXES[rest.lower()]
    rest, scale = _split_off_scale(rest)
    value *= scale * (-1 if match.group("sign") == "-" else 1)
    step = scale * _value_of_last_place(number)
    currency = _CURRENCIES.get(match.group("currency") or "", match.group("currency") or "")
    if currency and rest and not rest.lower().startswith(("dollar", "usd", "euro", "pound", "yen", "rupee")):
        is_rate = rest.startswith("/") or rest.lower().startswith("per ")
        measure, noun = (currency + rest, "") if is_rate else (currency, rest)
    else:
        measure, noun = (rest or currency, "") if currency else (rest, rest)
    integer = not re.search(r"[./eE]", number)
    unit = units.parse_unit(measure)
    if unit is None and (head := units.find_leading_unit(measure)):
        unit, noun = units.parse_unit(head), measure[len(head) :].strip() if measure is rest else noun
    elif unit is not None and measure is rest:
        noun = ""
    if (len(noun) > 60 and unit is None) or not _NOUN.fullmatch(noun.lstrip(" ,;(")):
        return None  # "-1 ≤ x ≤ 2", "3-p", "5 or 6" and "5 km!" are not quantities
    if unit is None:
        return None if currency else Quantity(value, value, None, normalize_words(noun), integer, step)
    return Quantity(value, value * unit.factor, unit, "", integer, step)


def _value_of_last_place(number: str) -> Fraction:
    """Return the value of a decimal's last place: 1/100 in 3.14, 10^4 in 3.2e5."""
    if "/" in number:
        return Fraction(0)
    places = re.search(r"\.(\d+)", number)
    exponent = re.search(r"(?:[eE]|10\^)([-+]?\d+)$", number)
    return Fraction(10) ** (int(exponent[1] if exponent else 0) - len(places[1] if places else ""))


def _read_quantity_in_words(text: str) -> Quantity | None:
    value, rest = numerals.read_number_words(text)
    return (
        None if value is None else parse_quantity(f"{value.numerator}/{value.denominator} {rest}".replace("/1 ", " "))
    )


def _split_off_scale(rest: str) -> tuple[str, int]:
    head, _, tail = rest.partition(" ")
    factor = _SCALES.get(head.lower().rstrip(".,").removesuffix("s"))
    if factor is None:
        return rest, 1
    tail, more = _split_off_scale(tail.removeprefix("of ").strip())
    return tail, factor * more


def _is_same_quantity(gold: Quantity, answer: str, question: str) -> bool:
    answer = _MINUS.sub("-", answer)
    measure = parse_quantity(_write_fraction_plainly(answer)) or _read_only_quantity(answer)
    if measure is None:
        return False
    if gold.unit is None:
        # For a gold number without a unit, the question states the unit, which the answer may repeat.
        same_noun = measure.unit is None and _normalize_noun(measure.noun) in ("", _normalize_noun(gold.noun))
        nouns_agree = same_noun or (not gold.noun and not _ALTERING.search(measure.noun))
        if not gold.noun and _VARIABLE.fullmatch(answer.strip()[-2:]):
            return False
        is_share = measure.unit is not None and not measure.unit.dimension
        as_written = _asks_for_sign(question, answer) and _is_close(gold, measure, in_base=False)
        return nouns_agree and (as_written or (is_share and _is_close(gold, measure)))
    if measure.unit is None:
        # 20 % equals 0.20; every other unit must be stated.
        return not gold.unit.dimension and not measure.noun and not measure.is_integer and _is_close(gold, measure)
    return gold.unit.dimension == measure.unit.dimension and _is_close(gold, measure)


def _asks_for_sign(question: str, answer: str) -> bool:
    """Return whether the question asks for per cent or degrees, if the answer has such a sign."""
    return all(sign not in answer or asks.search(question) for sign, asks in _SIGNS.items())


def _is_close(gold: Quantity, measure: Quantity, *, in_base: bool = True) -> bool:
    """Return whether a number equals the gold number at its precision, or is the gold number rounded to fewer places.

    `in_base` compares the values in the unit's base; otherwise the numbers are compared as written.
    """
    gold_step = gold.step * (gold.unit.factor if gold.unit else 1)
    step = measure.step * (measure.unit.factor if in_base and measure.unit else 1)
    off = abs((measure.value if in_base else measure.number) - gold.value)
    if gold.is_integer:
        # Rounding errors that a decimal conversion may leave in the last places.
        return off <= abs(gold.value) / 10**9
    if 2 * off <= gold_step:
        return True
    has_cents = gold.step == Fraction(1, 100) and gold.unit is not None and gold.unit.dimension in _MONEY
    return not has_cents and gold_step < step and 2 * off <= step and off <= TOLERANCE * abs(gold.value)


def _normalize_noun(text: str) -> str:
    return " ".join(word.removesuffix("s") for word in text.split())


def _read_only_quantity(answer: str) -> Quantity | None:
    """Return the one quantity in a sentence; None if there are several or if the sentence denies."""
    if len(answer) > 300 or sentences.DENIAL.search(answer):
        return None
    if match := _ASSIGNED.fullmatch(answer):
        return parse_quantity(_write_fraction_plainly(match.group(2)))
    if len(re.findall(r"(?<![\w.,])[-+]?[$€£¥]?\d[\d,]*(?:\.\d+)?", answer)) != 1:
        return None
    match = _SAID.search(answer)
    if match is None or _NOT_PROSE.search(answer[: match.start()]):
        return None
    return parse_quantity(_write_fraction_plainly(answer[match.end() :]))


# ── text ─────────────────────────────────────────────────────────────────────


def _write_fraction_plainly(text: str) -> str:
    r"""Convert `\frac{1}{3}` inside text to `1/3`."""
    return re.sub(r"\\d?frac\{([\d.]+)\}\{([\d.]+)\}", r"\1/\2", text)


def _is_same_parts(gold: str, answer: str, question: str) -> bool:
    """Return whether two lists such as "quantity, price" or "(0.00, 4.00)" have the same members in the same order.

    Between numbers and equations "or" lists solutions, as "and" and a comma do; between words it offers alternatives.
    """
    parts, others = _split_parts(gold), _split_parts(answer)
    if not 1 < len(parts) == len(others):
        return False
    if not all(
        map(_is_same_reading, map(normalize_spelling, parts), map(normalize_spelling, others), [question] * len(parts))
    ):
        return False
    are_values = all(
        parse_quantity(normalize_spelling(part)) is not None or _ASSIGNED.fullmatch(part) for part in parts
    )
    return are_values or len(_OR.findall(gold)) == len(_OR.findall(answer))


def _split_parts(text: str) -> list[str]:
    """Return the members of a list; a separator within brackets separates none."""
    text = text.strip()
    if text.startswith("(") and _find_closing_bracket(text) == len(text) - 1:
        text = text[1:-1]
    pieces, start, depth = [], 0, 0
    for match in _SEPARATOR.finditer(text):
        if match["bracket"]:
            depth += 1 if match["bracket"] in "([{" else -1
        elif depth <= 0:
            pieces.append(text[start : match.start()])
            start = match.end()
    return [piece for piece in (*pieces, text[start:]) if piece.strip(" .")]


def _find_closing_bracket(text: str) -> int:
    """Return the place of the bracket that closes the first one; -1 without it."""
    depth = 0
    for position, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if not depth:
            return position
    return -1


def _is_same_assigned(gold: str, answer: str, question: str) -> bool:
    """Return whether `x = 5` is written as `5`, or the reverse; if both have names, the names must agree."""
    left, right = _ASSIGNED.fullmatch(gold), _ASSIGNED.fullmatch(answer)
    if left and right:
        return is_same_text(left.group(1), right.group(1)) and _is_same_reading(left.group(2), right.group(2), question)
    if left:
        return _is_same_reading(left.group(2), answer, question)
    if right:
        value = right.group(2)
        while chained := _ASSIGNED.fullmatch(value):  # in "total = 5 + 2 = 7", the last value counts
            value = chained.group(2)
        return _is_same_reading(gold, value, question)
    is_latex = re.search(r"\\[A-Za-z]", gold) is not None
    return (
        is_latex
        and latex.normalize_answer(gold) == latex.normalize_answer(answer)
        and list_symbols(gold) == list_symbols(answer)
    )


def _find_gold_error(problem: Problem) -> str:
    answer = problem.answer
    if len(answer) > MAX_CHARACTERS:
        return f"longer than {MAX_CHARACTERS} characters"
    # Letters, numbers and symbols (an infinity sign, a currency) count as content.
    says = any(unicodedata.category(char)[0] in "LNS" for char in answer)
    return "" if says else "nothing is left of it but punctuation"


GRADER = Grader(
    "text", 'Finish with "Answer: " and a short answer.', find_answer, grade_answer,
    find_gold_error=_find_gold_error,
    is_same_answer=lambda one, other, problem: is_same_answer(one, other, problem.question),
)  # fmt: skip
