"""Short text: words, quantities with units, yes and no, labelled options, and small lists of these.

A quantity must have the gold answer's unit, in any spelling or SI prefix. A
number must equal the gold number when rounded to the gold number's precision, or
be the gold number rounded to fewer places, within 1 %; an integer must be exact.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction
from typing import NamedTuple

from ops.core.problem import Grade, Problem
from ops.grading import dates, extract, latex, numbers, numerals, sentences, units
from ops.grading.answering import answering
from ops.grading.grader import Grader

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
_LABEL = re.compile(r"\(?([A-Za-z0-9])\.?\)[\s.:-]*(?=(.*))|([A-Za-z])[.:](?:\s+(.*)|$)", re.S)
_LETTERS = re.compile(r"\(?[a-z]\)?(?:(?:,| and|, and| &)\s*\(?[a-z]\)?)*", re.I)
_APPROXIMATELY = re.compile(
    r"^(?:in(?: the year)?(?= \d)|approximately|approx\.?|about|around|roughly|nearly|~|≈|=|is|equals?)\s*", re.I
)
_QUANTITY = re.compile(
    r"(?P<sign>[-+]?)\s*(?P<currency>US\$|USD|EUR|GBP|JPY|INR|\$|€|£|¥|₹|Rs\.?)?\s*"
    r"(?P<number>[-+]?(?:\d+(?:,\d{3})+|\d+)?(?:\.\d+)?(?:[eE][-+]?\d{1,3})?"
    r"(?:\s*[x×*]\s*10\s*\^\s*\{?[-+]?\d{1,3}\}?)?(?:\s*/\s*\d+(?:\.\d+)?)?)"
    r"(?![\d]|[.,]\d)\s*(?P<rest>.*)",
    re.S,
)
_ASSIGNED = re.compile(r"([A-Za-z][\w*' ]{0,30}?)\s*[=≈]\s*(?=[^=])(.*)", re.S)
_SECOND = re.compile(r"\b(?:or|and|to)\s+[-+$€£]?\d|^[^,;(]*[^\W\d]\s+\d", re.IGNORECASE)
"""Signs of a second number after a number: a hedge, a range, a list or a sum ("3 hours 20 minutes")."""
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
_MONEY = tuple(((name, 1),) for name in ("dollar", "euro", "pound", "rupee"))
"""Dimensions of the currencies that have hundredths."""
_CURRENCIES = {"US$": "$", "USD": "$", "Rs": "rupee", "Rs.": "rupee"}


_QUOTED = re.compile(r"[\"“]((?:[^\"“”\\\n]|\\.){1,500})[\"”]\s*(?:[,}\]].*)?$", re.DOTALL)


class Quantity(NamedTuple):
    """A quantity: `number` as written, `value` in the unit's base; `unit` is None without a unit or with only a `noun`.

    `step` is the value of the last place of `number`; 0 if there are no places, as in 2/3.
    """

    number: Fraction
    value: Fraction
    unit: units.Unit | None
    noun: str
    integer: bool
    step: Fraction


def extracted(problem: Problem, response: str) -> str:
    """Return what the last "Answer:", box or tag states; otherwise the last "the answer is", otherwise the last line.

    A later sentence that corrects the statement replaces it. If the
    gold answer has several lines, all following text counts.
    """
    text = extract.without_html(answering(response, lambda before: bool(extract.statements(before))))
    if "\n" in problem.answer.strip() and (several := extract.following(text)):
        return several
    statements = extract.statements(text)
    formal = [statement for statement in statements if statement.formal]
    if not statements:
        return extract.last_line(text)
    stated = (formal or statements)[-1]
    if extract.CORRECTION.search(text, stated.end, max(stated.end, statements[-1].start)):
        stated = statements[-1]
    line = extract.without_phrase(stated.text)
    quoted = _QUOTED.match(line)
    return quoted[1] if quoted else line


def judge(problem: Problem, answer: str) -> Grade:
    """Compare `answer` with the gold answer."""
    if not answer.strip():
        return Grade(0.0, "", "no answer found")
    if len(answer) > MAX_CHARACTERS and len(answer) > 2 * len(problem.answer):
        return Grade(0.0, answer[:200], "far longer than an answer")
    if same_answer(problem.answer, answer):
        return Grade(1.0, answer, "equal")
    return Grade(0.0, answer, f"not equal to {problem.answer[:80]}")


def same_answer(gold: str, answer: str) -> bool:
    """Return whether two short answers are equal in meaning."""
    gold, answer = _tidy(gold), _tidy(answer)
    if not gold or not answer:
        return False
    return _same(gold, answer) or any(_same(gold, _tidy(part)) for part in sentences.reductions(answer))


def _same(gold: str, answer: str) -> bool:
    if gold == answer:
        return True
    if _LETTERS.fullmatch(gold):
        return _same_letters(gold, answer)
    if (label := _label(gold)) is not None:
        return _same_labelled(label, answer)
    if plain(gold) in _TRUTH:
        return _same_truth(gold, answer)
    if (ratio := numerals.ratio(gold)) is not None and numerals.ratio(answer) == ratio:
        return True
    if (wanted := quantity(gold)) is not None:
        return _same_quantity(wanted, answer)
    if plain(gold) == plain(answer) != "" or _abbreviated(gold, answer):
        return True
    if (date := dates.read(gold)) is not None:
        return dates.read(answer) == date
    parts, others = _parts(gold), _parts(answer)
    if len(parts) > 1:
        return len(parts) == len(others) and all(map(_same, map(_tidy, parts), map(_tidy, others)))
    return _same_assigned(gold, answer)


# ── sentences ────────────────────────────────────────────────────────────────


def _abbreviated(gold: str, answer: str) -> bool:
    """Return whether the answer is either half of a gold answer such as "World Health Organization (WHO)"."""
    match = re.fullmatch(r"([^()]+?)\s*\(([^()]+)\)", gold)
    if match is None:
        return False
    initials = "".join(word[0] for word in plain(match[1]).split() if word not in ("of", "and", "for", "in"))
    return plain(match[2]) == initials and plain(answer) in (plain(match[1]), plain(match[2]))


# ── labels, letters and truth ────────────────────────────────────────────────


def _label(text: str) -> tuple[str, str] | None:
    """Return ("d", "the long run") for "(D) the long run" or "d. the long run"."""
    match = _LABEL.match(text)
    if match is None:
        return None
    return (match.group(1) or match.group(3)).lower(), (match.group(2) or match.group(4) or "").strip()


def _same_letters(gold: str, answer: str) -> bool:
    wanted = re.findall(r"\b[a-z]\b", gold.lower())
    if len(wanted) == 1:
        label = _label(answer)
        bare = re.fullmatch(r"(?:option|choice)?\s*\(?([a-z])\)?[.:]?", answer.strip(), re.I)
        letter = label[0] if label else bare.group(1).lower() if bare else ""
        return bool(letter == wanted[0])
    told_letters = re.findall(r"\b[a-z]\b", answer.lower())
    return _LETTERS.fullmatch(answer) is not None and sorted(told_letters) == sorted(wanted)


def _same_labelled(gold: tuple[str, str], answer: str) -> bool:
    letter, text = gold
    label = _label(answer)
    if label is None:
        bare = re.fullmatch(r"(?:option|choice)?\s*\(?([A-Za-z0-9])\)?[.:]?", answer.strip(), re.I)
        label = (bare.group(1).lower(), "") if bare else None
    # An unusual gold label (the "(S)" of some benchmarks) is ignored, and the text after it decides.
    if label is not None and letter in "abcdefgh" and label[0] in "abcdefgh":
        return label[0] == letter and not _contradict(text, label[1])
    if label is not None and not label[1]:
        return label[0] == letter and letter in "abcdefgh0123456789"
    if not text:
        return False
    inner = _label(text)
    texts = (text, inner[1]) if inner and inner[1] else (text,)
    return any(same_answer(t, label[1] if label and label[1] else answer) for t in texts)


def _contradict(gold: str, answer: str) -> bool:
    """Return whether the texts after one letter are two different numbers, so that the letter does not decide."""
    numbers_both = all(quantity(_tidy(text)) is not None for text in (gold, answer))
    return numbers_both and not same_answer(gold, answer)


def _same_truth(gold: str, answer: str) -> bool:
    wanted = _TRUTH[plain(gold)]
    label = _label(answer)
    word = plain(label[1] if label and label[1] and len(label[0]) == 1 and label[0] not in "tfyn" else answer)
    if word in _TRUTH:
        return _TRUTH[word] == wanted
    # "False, since …" and "No it is not": the first word decides if a stop or a new clause follows it.
    first = re.match(
        r"[\s*(\"']*([A-Za-z]+)[*\"')]*\s*(?:[.,;:!—–]|-\s|(?:because|since|it|they|this|that|there|he|she|we)\b|$)",
        answer,
    )
    return first is not None and len(first.group(1)) > 1 and _TRUTH.get(first.group(1).lower()) == wanted


# ── quantities ───────────────────────────────────────────────────────────────


def quantity(text: str) -> Quantity | None:
    """Return `text` as one number with its unit or noun; None if it is anything else."""
    text = _APPROXIMATELY.sub("", text.strip())
    match = _QUANTITY.fullmatch(text)
    if match is None or not match.group("number"):
        return _in_words(text)
    number = re.sub(r"\s+", "", match.group("number")).replace("{", "").replace("}", "")
    if (value := numbers.exact(number)) is None:
        return None
    rest = match.group("rest").strip().rstrip(".").strip()
    if _SECOND.search(rest):
        return None
    if match.group("currency") and rest.lower() in _SUFFIXES:
        rest = _SUFFIXES[rest.lower()]
    rest, scale = _scaled(rest)
    value *= scale * (-1 if match.group("sign") == "-" else 1)
    step = scale * _step(number)
    spelled = _CURRENCIES.get(match.group("currency") or "", match.group("currency") or "")
    if spelled and rest and not rest.lower().startswith(("dollar", "usd", "euro", "pound", "yen", "rupee")):
        spelled = spelled + (rest if rest.startswith("/") or rest.lower().startswith("per ") else "")
        noun = rest
    else:
        noun, spelled = ("", rest or spelled) if spelled else (rest, rest)
    unit = units.parse(spelled) or units.parse(units.longest(spelled))
    integer = not re.search(r"[./eE]", number)
    if unit is None:
        # "-1 ≤ x ≤ 2", "3-p" and "5 or 6" are not quantities.
        is_noun = len(noun) <= 60 and re.fullmatch(r"(?:(?!or\b)[^\W\d][^\d<>=≤≥]*)?", noun) is not None
        return Quantity(value, value, None, plain(noun), integer, step) if is_noun else None
    return Quantity(value, value * unit.factor, unit, "", integer, step)


def _step(number: str) -> Fraction:
    """Return the value of a decimal's last place: 1/100 in 3.14, 10^4 in 3.2e5."""
    if "/" in number:
        return Fraction(0)
    places = re.search(r"\.(\d+)", number)
    exponent = re.search(r"(?:[eE]|10\^)([-+]?\d+)$", number)
    return Fraction(10) ** (int(exponent[1] if exponent else 0) - len(places[1] if places else ""))


def _in_words(text: str) -> Quantity | None:
    value, rest = numerals.read(text)
    return None if value is None else quantity(f"{value.numerator}/{value.denominator} {rest}".replace("/1 ", " "))


def _scaled(rest: str) -> tuple[str, int]:
    head, _, tail = rest.partition(" ")
    factor = _SCALES.get(head.lower().rstrip(".,").removesuffix("s"))
    if factor is None:
        return rest, 1
    tail, more = _scaled(tail.removeprefix("of ").strip())
    return tail, factor * more


def _same_quantity(gold: Quantity, answer: str) -> bool:
    answer = _MINUS.sub("-", answer)
    measure = quantity(_tidy_number(answer)) or _only_quantity(answer)
    if measure is None:
        return False
    if gold.unit is None:
        # For a gold number without a unit, the question states the unit, which the answer may repeat.
        same_noun = measure.unit is None and _noun(measure.noun) in ("", _noun(gold.noun))
        nouns_agree = same_noun or (not gold.noun and not _ALTERING.search(measure.noun))
        if not gold.noun and _VARIABLE.fullmatch(answer.strip()[-2:]):
            return False
        is_share = measure.unit is not None and not measure.unit.dimension
        return nouns_agree and (_close(gold, measure, in_base=False) or (is_share and _close(gold, measure)))
    if measure.unit is None:
        # 20 % equals 0.20; every other unit must be stated.
        return not gold.unit.dimension and not measure.noun and not measure.integer and _close(gold, measure)
    return gold.unit.dimension == measure.unit.dimension and _close(gold, measure)


def _close(gold: Quantity, measure: Quantity, *, in_base: bool = True) -> bool:
    """Return whether a number equals the gold number at its precision, or is the gold number rounded to fewer places.

    `in_base` compares the values in the unit's base; otherwise the numbers are compared as written.
    """
    gold_step = gold.step * (gold.unit.factor if gold.unit else 1)
    step = measure.step * (measure.unit.factor if in_base and measure.unit else 1)
    off = abs((measure.value if in_base else measure.number) - gold.value)
    if gold.integer:
        # Rounding errors that a decimal conversion may leave in the last places.
        return off <= abs(gold.value) / 10**9
    if 2 * off <= gold_step:
        return True
    has_cents = gold.step == Fraction(1, 100) and gold.unit is not None and gold.unit.dimension in _MONEY
    return not has_cents and gold_step < step and 2 * off <= step and off <= TOLERANCE * abs(gold.value)


def _noun(text: str) -> str:
    return " ".join(word.removesuffix("s") for word in text.split())


def _only_quantity(answer: str) -> Quantity | None:
    """Return the one quantity in a sentence; None if there are several or the sentence denies."""
    if len(answer) > 300 or sentences.DENIED.search(answer):
        return None
    if match := _ASSIGNED.fullmatch(answer):
        return quantity(_tidy_number(match.group(2)))
    if len(re.findall(r"(?<![\w.,])[-+]?[$€£¥]?\d[\d,]*(?:\.\d+)?", answer)) != 1:
        return None
    if match := re.search(_SAID.pattern, answer):
        return quantity(_tidy_number(answer[match.end() :]))
    return None


# ── text ─────────────────────────────────────────────────────────────────────


def plain(text: str) -> str:
    """Normalise case, articles, punctuation and spacing; keep signs, decimal points and operators."""
    text = "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))
    text = unicodedata.normalize("NFKC", text).casefold().replace("&", " and ")
    text = re.sub(r"(?<!\d)\.|\.(?!\d)|(?<=\d),(?=\d{3}\b)|['’]", "", text)
    text = re.sub(r"[^\w%$€£+*/^<>=.-]+|(?<=\w)-(?=[^\W\d])", " ", text)
    return " ".join(word for word in text.split() if word not in ("a", "an", "the"))


def _tidy(text: str) -> str:
    """Remove LaTeX wrapping, emphasis, quotes and a final stop."""
    text = text.strip().replace("−", "-").replace("–", "-").replace("\\%", "%").replace("\\$", "$")
    text = re.sub(r"(?:\*\*|__|`)(\.?)$", r"\1", re.sub(r"\{/?eq\}", "", text))
    text = re.sub(r"\\(?:text|mathrm|textbf|mbox|mathbf)\s*\{([^{}]*)\}", r"\1", text)
    text = re.sub(r"\\(?:boxed|fbox)\s*\{([^{}]*)\}", r"\1", text)
    for old, new in (("\\,", " "), ("\\ ", " "), ("{,}", ","), ("\\times", "×"), ("^\\circ", "°")):
        text = text.replace(old, new)
    text = text.strip().strip('*`"“”').strip()
    if text.count("$") == 2 and text.startswith("$") and text.endswith("$"):
        text = text[1:-1]
    if text.startswith("\\(") and text.endswith("\\)"):
        text = text[2:-2]
    return re.sub(r"(?<!\.)\.$", "", text.strip()).strip()


def _tidy_number(text: str) -> str:
    r"""Convert `\frac{1}{3}` inside text to `1/3`."""
    return re.sub(r"\\d?frac\{([\d.]+)\}\{([\d.]+)\}", r"\1/\2", text)


def _parts(text: str) -> list[str]:
    """Return the members of "x = 591, y = 310", "quantity, price" or "(0.00, 4.00)"."""
    text = text.strip()
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    pieces = re.split(r"\s*(?:;|\n+|,(?!\d{3}\b)|\band\b|\.\s\.\s\.|\bor\b)\s*", text)
    return [piece for piece in pieces if piece.strip(" .")]


def _same_assigned(gold: str, answer: str) -> bool:
    """Return whether `x = 5` is written as `5`, or the reverse; if both have names, the names must agree."""
    left, right = _ASSIGNED.fullmatch(gold), _ASSIGNED.fullmatch(answer)
    if left and right:
        return plain(left.group(1)) == plain(right.group(1)) and _same(left.group(2), right.group(2))
    if left:
        return _same(left.group(2), answer)
    if right:
        value = right.group(2)
        while chained := _ASSIGNED.fullmatch(value):  # in "total = 5 + 2 = 7", the last value counts
            value = chained.group(2)
        return _same(gold, value)
    cleaned = latex.clean(gold).value
    return "\\" in gold and cleaned == latex.clean(answer).value


def _unreadable(problem: Problem) -> str:
    answer = problem.answer
    if len(answer) > MAX_CHARACTERS:
        return f"longer than {MAX_CHARACTERS} characters"
    # Letters, numbers and symbols (an infinity sign, a currency) count as content.
    says = any(unicodedata.category(char)[0] in "LNS" for char in answer)
    return "" if says else "nothing is left of it but punctuation"


GRADER = Grader(
    "text", 'Finish with "Answer: " and a short answer.', extracted, judge,
    unreadable=_unreadable, same=lambda one, other, _: same_answer(one, other),
)  # fmt: skip
