"""Read values from prose: the value that a line or a closing sentence states, without its reason or counted noun."""

from __future__ import annotations

import re
from itertools import pairwise

from ops.grading import extract, latex, numerals, units

_JOIN = re.compile(
    r"(?:[\s$,;&]|\band\b|\bor\b|\\text\s*\{\s*(?:and|or)\s*\}|\\q?quad(?![a-z])|\\[ ,;])+"
    r"(?:\\?[A-Za-z]\w?(?:_\{?\w+\}?)?\s{0,3}=[\s$]{0,3})?"
)
_SEPARATOR = re.compile(r"[,;&]|\band\b|\bor\b|quad")
_CUT = re.compile(
    r"[\s,;(–—-]*\b(?:because|since|so|which|hence|thus|therefore|as[ ](?:one|required|desired|we|can|was|claimed)|"
    r"rather[ ]than|instead[ ]of|i[ ]hope|i\.e\.|that[ ]is|and[ ](?:so|thus|hence|we|then))(?![\w}])"
    r"|[\s,;(–—-]*\bnot\b(?=[\s$]*[-\d\\$A-Za-z(])|[\s,;(–—-]*\b(?:approximately|roughly|about|nearly)(?=\s*(?:[-\d$\\]|$))"
    r"|,\s*or\s+(?![$\\]|[A-Za-z]\s*=)(?=[^$]*$)|</answer>|\s+[–—]\s+|\s+\((?!\s*(?:in\s+)?base\b)(?=[^()]*(?<![\\A-Za-z])[A-Za-z]{3}[^()]*\))",
    re.IGNORECASE,
)
STOP = re.compile(r"(?<!\\)[.!?](?=[*_`\"']*(?:\s|$))(?<!\b(?:in|ft|sq|cu|Rs)\.)")
_OPENING_MARKS = re.compile(r"(?<![\w)}\]])(?:\*\*|__)(?=\S)|`")
_CLOSING_MARKS = re.compile(r"(?<=\S)(?:\*\*|__)(?![\w(\\{-])")
_GLOSS = re.compile(r"[,(]?\s*(?:(?:which|that)\s+is\s+)?\(?\b(?:approximately|about|roughly)\s+(?=[-\d$\\])")
_VERB = re.compile(
    r"\b(?:is|are|be|equals|gives?|yields?|leaves|(?<!in )totals?|becomes)\b:?|(?<![<>!:=\\])=(?!=)|:(?=\s)"
)
_BEFORE_VALUE = " \t\n*_`\"':"
ARTICLE = re.compile(r"(?:an?|the|one|i)\s+[a-z]", re.IGNORECASE)
VALUE = re.compile(
    r"[-+±]?\s*(?:US)?\\?\$?\s*[-+]?\.?\d|[-+]?\s*[√∛π∞½⅓⅔¼¾⅛θ(\[{|]|[-+]?\s*\\[A-Za-z{(\[$!]|[-+]?[A-Za-z](?![A-Za-z])"
    r"|[A-Z]{1,4}(?:\s*=|(?![\w']))|[-+]?(?:sqrt|sin|cos|tan|log|ln|pi|exp)\b"
)
_NUMBER = re.compile(
    r"(?<![\w.,])(?<!\w-)-?\\?\$?\d[\d,]*(?:\.\d+)?(?:/\d+)?%?(?:\s+(?:" + "|".join(latex.SCALES) + r")s?\b)?(?![\d])"
)
_SCALED = re.compile(r"\s*(?:" + "|".join(latex.SCALES) + r"|percent)s?\b")
WISH = re.compile(r"\b(?:i hope|hope this|let me know|feel free|please)\b", re.IGNORECASE)
_LABEL = re.compile(r"\b(?:step|case|part|equation|question|problem|example|figure)\s+$", re.IGNORECASE)
_COUNTED = re.compile(
    r"(?P<number>[-+]?\s*(?P<money>\\?\$)?\d[\d,]*(?:\.\d+)?(?:/\d+)?%?)(?P<rest>(?:/[A-Za-z]|,?\s|[A-Za-z]{2})"
    r"[\w\s,.;:'’\"“”()%/–-]*)"
)
"""A number and the rest of its closing sentence in prose: `460 for this week's work`, `15 liters of water`."""
_NUMERAL = r"[-+$\\]*(?:\d|(?:" + "|".join(numerals.NUMBER_WORDS) + r"|half|twice|double|triple|thrice)\b)"
_CHANGES = re.compile(
    r"^\W*(?:to|and(?!\s+[A-Za-z]{2})|or)\b|\b(?:or|and|to|between|than|by|over)\s+"
    + _NUMERAL
    + r"|^\s*half\b|\bno,|\band\s+an?\s+(?:half|third|quarter)\b|^\s*at\s+(?:most|least)\b|^\s*for\s+(?:every|each)\b"
    r"|(?<!the )\b(?:"
    + "|".join(latex.SCALES)
    + r"|score|gross|pair|halve|third|quarter|fifth|sixth|seventh|eighth|ninth|"
    r"tenth|hundredth|thousandth|power|root|factorial|modulo?|base|binary|chance|odd)s?\b"
    r"|\b(?:squared|cubed|raised|choose|divided|multiplied|times(?!\W*$|\s+(?:an?|each|every|per|to|in|for|on|"
    r"during|before|after|that|this|last|while|when)\b)|minus|plus|not|never|least|most|cents?|out\s+of)\b"
    r"|(?<!['’])\b[B-HJ-Zb-hj-z]\b",
    re.IGNORECASE,
)
"""Words after a number that change its value, introduce an alternative number, or name an unknown."""
_REASON = re.compile(r"^\W*(?:since|because|as|with|given|when|for)\b.*,\s+", re.IGNORECASE)
"""A clause before the one that gives a value: "Since a = 3 and b = 5, the sum is 8."."""
_SUBJECT = re.compile(
    r"(?!.*\b(?:no|not|never|cannot|than|least|most|to|over|under|above|below|by|between|from|of|step|case|part)\b)"
    r"(?-i:[A-Z])[\w'’]*(?:\s+[\w'’]+){1,6}\s+",
    re.IGNORECASE,
)
"""Subject and verb of a sentence that gives a number: "She sold" in "She sold 72 clips."."""
_CLAUSE = re.compile(r",?\s+(?:that|which|who|whose|while|when|until)\b")
_SHARE = re.compile(
    r"^\s*(?:(?:for|in|of|from|per)(?:\s+the|\s+an?|\s+every)?\s+(?:\d|[a-z]+\W*$)|in\s+(?:every|an?)\b)"
)
"""A ratio, a chance or a share: `5 for 3`, `1 in a million`, `2 of the 7`; after money, the purchased item."""
_AMONG = re.compile(
    r"\b(?:in|for|from|by|after|before|with|per|to\s+[a-z]+)(?:\s+the)?\s+\d[\d,]*\s+[A-Za-z]{2,}"
    r"(?:\s+and\s+\d[\d,]*\s+[A-Za-z]{2,})?|\bof\s+the\s+\d+\s+[a-z]{2,}"
)
"""A second number that only states a time, a place or a purpose: `26 inches in 13 years`."""


def extract_closing_value(text: str) -> str:
    """Return the value in the last sentence that contains mathematics, if that sentence is in the last paragraph."""
    lines = [line for line in text.strip().splitlines() if line.strip() and not WISH.search(line)]
    if not lines:
        return ""
    paragraph = lines[-1]
    if paragraph.strip() in ("$$", "\\]"):
        paragraph = "\n".join(lines[-8:])
    return _extract_last_sentence_value(_split_sentences(paragraph)[-1])


def extract_last_value(text: str) -> str:
    """Return the last formula or number of the text, whichever is later; without either, the last line."""
    formula = number = None
    for formula in extract.FORMULA.finditer(text):  # noqa: B007 (the last match is wanted)
        pass
    for match in _NUMBER.finditer(text):
        if not _LABEL.search(text[max(0, match.start() - 12) : match.start()]):
            number = match
    if formula is not None and (number is None or number.start() < formula.end()):
        return _formula_content(formula)
    if number is None:
        return extract.extract_last_line(text)
    return _append_unit(number.group(), text[number.end() : number.end() + 60].partition("\n")[0])


def _split_sentences(paragraph: str) -> list[str]:
    """Return the sentences; a full stop inside a formula or after a digit does not end a sentence."""
    starts = [0]
    formulas = [match.span() for match in extract.FORMULA.finditer(paragraph)]
    stops = re.finditer(r"[.!?][*_\"')]*\s+(?=[A-Z$\\*])", paragraph)
    starts += [stop.end() for stop in stops if not any(start < stop.start() < end for start, end in formulas)]
    return [paragraph[start:end] for start, end in pairwise([*starts, len(paragraph)])]


def _extract_last_sentence_value(sentence: str) -> str:
    gloss = _GLOSS.search(sentence)
    if gloss and re.search(r"[\d\\]", sentence[: gloss.start()]):
        sentence = sentence[: gloss.start()]
    formulas = list(extract.FORMULA.finditer(sentence))
    start = _find_group_start(sentence, formulas) if formulas else -1
    for verb in reversed(list(_VERB.finditer(sentence))):
        if any(formula.start() < verb.start() < formula.end() for formula in formulas):
            continue
        rest = sentence[verb.end() :].lstrip(_BEFORE_VALUE)
        begins = len(sentence) - len(rest)
        if begins < start:
            break
        if _begins_with_value(rest):
            return _drop_counted_noun(extract_value(rest))
    if start < 0:
        value = extract_value(sentence)
        return counted if value[:1].isdigit() and (counted := _drop_counted_noun(value)) != value else ""
    scale = _SCALED.match(sentence, formulas[-1].end())
    return extract_value(sentence[start : scale.end() if scale else formulas[-1].end()])


def _drop_counted_noun(value: str) -> str:
    """Return a number and its unit without the rest of the sentence, unless the rest changes or replaces the number."""
    match = _COUNTED.fullmatch(_CLAUSE.split(value)[0])
    if match is None:
        return value
    rest = _AMONG.sub("", match["rest"])
    if _CHANGES.search(rest) or re.search(r"\d", rest) or (not match["money"] and _SHARE.match(match["rest"])):
        return value
    return _append_unit(match["number"], match["rest"])


def _append_unit(number: str, behind: str) -> str:
    """Return a number with the unit after it, if there is one."""
    unit = units.find_leading_unit(behind.lstrip())
    return f"{number} {unit}" if len(unit) > 1 and unit.isalpha() else number


def extract_sentence_value(line: str) -> str:
    """Return the value that a line gives in a sentence: 34 for "The largest $n$ is 34."; "" if no sentence does.

    A sentence that gives several values or denies gives none; one without "is" or "equals" gives its only number.
    """
    told = [_REASON.sub("", sentence) for sentence in _split_sentences(line)]
    for sentence in told:
        formulas = [match.span() for match in extract.FORMULA.finditer(sentence)]
        verbs = [verb for verb in _VERB.finditer(sentence) if not any(s < verb.start() < e for s, e in formulas)]
        rests = [sentence[verb.end() :].lstrip(_BEFORE_VALUE) for verb in verbs]
        rests = [rest for rest in rests if _begins_with_value(rest)]
        numbers = list(_NUMBER.finditer(sentence))
        if len(numbers) == 1 and not (verbs or formulas) and _SUBJECT.fullmatch(sentence, 0, numbers[0].start()):
            rests = [sentence[numbers[0].start() :]]
        if len(rests) == 1:
            return _drop_counted_noun(extract_value(rests[0]))
    return _extract_last_sentence_value(told[-1]) if len(told) > 1 else ""


def _find_group_start(sentence: str, formulas: list[re.Match[str]]) -> int:
    """Return the start of the last formula, or of the first of the formulas that are joined to it."""
    start = formulas[-1].start()
    for formula in reversed(formulas[:-1]):
        # `$m/n$, and $m + n = 7$`: the requested value is the last one.
        alike = ("=" in formula.group()) == ("=" in formulas[-1].group())
        if not alike or not is_list_joint(sentence[formula.end() : start]):
            break
        start = formula.start()
    return start


def _begins_with_value(text: str) -> bool:
    if ARTICLE.match(text) or re.match(r"\$?\w+\$?-[a-z]", text):
        return False
    formula = extract.FORMULA.match(text)
    return formula is not None or VALUE.match(text) is not None


def is_list_joint(between: str) -> bool:
    """Return whether the text between two answers joins them into one list."""
    return len(between) <= 120 and bool(_JOIN.fullmatch(between)) and bool(_SEPARATOR.search(between))


def extract_value(line: str) -> str:
    """Return a statement's value without formula delimiters, reason, explanation and emphasis."""
    line = remove_emphasis_marks(line)
    kept: list[str] = []
    position = 0
    for formula in (*extract.FORMULA.finditer(line), None):
        plain = line[position : formula.start() if formula else len(line)]
        cuts = (match.start() for match in (_CUT.search(plain), STOP.search(plain)) if match)
        cut = min((cut for cut in cuts if kept or cut > 0), default=None)
        kept.append(plain[:cut])
        if cut is not None or formula is None:
            break
        kept.append(_formula_content(formula))
        position = formula.end()
    return "".join(kept).strip(' \t\n`"*')


def _formula_content(formula: re.Match[str]) -> str:
    return next(group for group in formula.groups() if group is not None).strip()


def remove_emphasis_marks(line: str) -> str:
    """Remove emphasis marks; a power such as `x**2` is kept."""
    return re.sub(r"^[*_>\s]+", "", _CLOSING_MARKS.sub("", _OPENING_MARKS.sub("", line)))
