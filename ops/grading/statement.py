"""The mathematical answer that a response states: boxed, announced, or in its closing sentence."""

from __future__ import annotations

import re
from typing import NamedTuple

from ops.grading import extract, latex

_MOST = 12
"""Announcements that are read, from the end: a response states its answer late."""
_BLOCK = 2_000
_MARKS = r"[ \t*_\"'`]{0,6}"
_ANNOUNCED = re.compile(
    rf"\b(?:answer|ans){_MARKS}[:=]|<answer>|^[ \t]*####(?=[ \t]*[-\d$\\])"
    rf"|^[ \t>#*_]{{0,8}}(?:final[ ])?(?:answer|result){_MARKS}$",
    re.IGNORECASE | re.MULTILINE,
)
_TOLD = re.compile(
    rf"\banswer{_MARKS}(?:to[ ][^.\n:]{{1,80}}?[ ])?(?:therefore[ ]|thus[ ]|then[ ])?"
    rf"\b(?:is|(?:must|would|will|should)[ ]be|equals)\b(?:[ ](?:therefore|thus|then|simply|just))?{_MARKS}:?",
    re.IGNORECASE,
)
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
_STOP = re.compile(r"(?<!\\)[.!?](?=[*_`\"']*(?:\s|$))(?<!\b(?:in|ft|sq|cu)\.)")
_ALIGNED = re.compile(r"\\begin\{(align|gather|eqnarray|multline)\*?\}(.{1,4000}?)\\end\{\1\*?\}", re.DOTALL)
_MENTIONED = re.compile(
    r"\b(?:this|(?:check|verify|confirm|checking|verifying) (?:our|the|my|your|that(?: the| our)?)|such an|any|an)\s+$",
    re.IGNORECASE,
)
"""What stands before an answer that is talked about, not stated."""
_ANNOUNCES = re.compile(r"(?:the )?(?:final )?answer\b", re.IGNORECASE)
_ROUNDED = re.compile(r"\s*(?:approximately|roughly|about|nearly|around|≈|\\approx)", re.IGNORECASE)
_OPENING_MARKS = re.compile(r"(?<![\w)}\]])(?:\*\*|__)(?=\S)|`")
_CLOSING_MARKS = re.compile(r"(?<=\S)(?:\*\*|__)(?![\w(\\{-])")
_GLOSS = re.compile(
    r"[,(]?\s*(?:(?:which|that)\s+is\s+)?\(?\b(?:approximately|about|roughly)\s+(?=[-\d$\\])"
)
_VERB = re.compile(
    r"\b(?:is|are|be|equals|gives?|yields?|leaves|totals?|becomes)\b:?|(?<![<>!:=\\])=(?!=)|:(?=\s)"
)
_ARTICLE = re.compile(r"(?:an?|the|one|i)\s+[a-z]", re.IGNORECASE)
_VALUE = re.compile(
    r"[-+±]?\s*(?:US)?\\?\$?\s*[-+]?\.?\d|[-+]?\s*[√∛π∞½⅓⅔¼¾⅛θ(\[{|]|[-+]?\s*\\[A-Za-z{(\[$!]|[-+]?[A-Za-z](?![A-Za-z])"
    r"|[A-Z]{1,4}(?:\s*=|(?![\w']))|[-+]?(?:sqrt|sin|cos|tan|log|ln|pi|exp)\b"
)
_NUMBER = re.compile(
    r"(?<![\w.,])(?<!\w-)-?\\?\$?\d[\d,]*(?:\.\d+)?(?:/\d+)?%?(?:\s+(?:" + "|".join(latex.SCALES) + r")s?\b)?(?![\d])"
)
_SCALED = re.compile(r"\s*(?:" + "|".join(latex.SCALES) + r"|percent)s?\b")
_WISH = re.compile(r"\b(?:i hope|hope this|let me know|feel free|please)\b", re.IGNORECASE)
_LABEL = re.compile(r"\b(?:step|case|part|equation|question|problem|example|figure)\s+$", re.IGNORECASE)


_COMPUTATION = re.compile(r"(?=.*\d[\s)]*[-+*×·](?!\s*10\s*\^)[\s(]*\d)[\d\s()+*×·/.^-]+")
"""A sum that nobody has added up; `6 × 10^{23}` and `1/2` are values."""


class StatedAnswer(NamedTuple):
    """A stated answer at `position`; `firm` unless it only rounds a value or is a word."""

    position: int
    value: str
    firm: bool


def stated(response: str) -> str:
    r"""The answer that is stated last: in a box, behind "Answer:" or "the answer is"; else the closing sentence's."""
    text = _spoken(extract.tail(response))
    boxes = extract.boxes(text)
    statements = [*_boxed(text, boxes), *_announced(text, boxes)]
    firm = [statement for statement in statements if statement.firm]
    if firm:
        return max(firm).value
    if (bare := extract.boxed(text)) is not None:
        return bare
    whole = text.strip()
    if len(whole) < 200 and "\n" not in whole and latex.words(latex.clean(whole).value) is None:
        return _without_marks(whole)
    closing = _closing(text)
    if _COMPUTATION.fullmatch(closing):  # not announced, and not carried out
        return _last_value(text)
    if statements and (not closing or not _VALUE.match(closing) or not _followed(text, max(statements).position)):
        return max(statements).value
    return closing or _last_value(text)


def _spoken(text: str) -> str:
    """What follows a thought, where anything does; aligned equations as the last of them."""
    _, mark, rest = text.rpartition("</think>")
    return _ALIGNED.sub(_last_row, rest if mark and rest.strip() else text)


def _last_row(aligned: re.Match[str]) -> str:
    rows = [row for row in aligned.group(2).split("\\\\") if row.strip()]
    if "box" in aligned.group(2) or not rows:
        return aligned.group()
    return "$$" + re.sub(r"^\s*(?:=|\\equiv)", "", rows[-1].replace("&", "")).strip() + "$$"


def _followed(text: str, position: int) -> bool:
    """Whether a further paragraph that says something follows the line at `position`."""
    _, _, rest = text[position:].lstrip().partition("\n")
    return bool(rest.strip()) and not _WISH.search(rest)


def _joins(between: str) -> bool:
    """Whether what stands between two answers makes one list of them."""
    return len(between) <= 120 and bool(_JOIN.fullmatch(between)) and bool(_SEPARATOR.search(between))


# ── boxes ────────────────────────────────────────────────────────────────────


def _boxed(text: str, boxes: list[extract.Box]) -> list[StatedAnswer]:
    """The last box; boxes joined to it by "and", "or" or a comma are one list with it."""
    boxes = [box for box in boxes if box.content]
    if not boxes:
        return []
    last = boxes.pop()
    contents, start = [last.content], last.start
    while boxes and boxes[-1].end <= start and _joins(text[boxes[-1].end : start]):
        box = boxes.pop()
        start = box.start
        if box.content not in contents:
            contents.insert(0, box.content)
    return [StatedAnswer(last.start, ", ".join(contents), True)]


# ── announcements ────────────────────────────────────────────────────────────


def _announced(text: str, boxes: list[extract.Box]) -> list[StatedAnswer]:
    """What follows each of the last announcements that stand in no box, where it says something."""
    matches = sorted((*_ANNOUNCED.finditer(text), *_TOLD.finditer(text)), key=lambda match: match.start())
    statements = []
    for match in matches[-_MOST:]:
        mentioned = _MENTIONED.search(text[max(0, match.start() - 24) : match.start()])
        if mentioned or any(box.start <= match.start() < box.end for box in boxes):
            continue
        block = text[match.end() : match.end() + _BLOCK]
        rounded = _ROUNDED.match(block)
        value = _value(_line(block[rounded.end() :] if rounded else block))
        if value and not _ANNOUNCES.match(value) and "boxed" not in value:
            is_word = (match.re is _TOLD and not _VALUE.match(value)) or _ARTICLE.match(value) is not None
            statements.append(StatedAnswer(match.start(), value, not rounded and not is_word))
    return statements


def _line(block: str) -> str:
    """The first line that says something, a display or a matrix in it whole."""
    block = block.lstrip(" \t\r\n*_>`\"':")
    if formula := extract.FORMULA.match(block):
        is_display = block.startswith(("$$", "\\["))
        rest = block[formula.end() :].split("\n", 1)[0]
        return block[: formula.end()] + ("" if is_display else rest)
    end = block.find("\n")
    begin = block.find("\\begin{")
    if 0 <= begin < (end if end >= 0 else len(block)) and (close := block.find("\\end{", begin)) > end:
        end = block.find("\n", close)
    return block if end < 0 else block[:end]


def _value(line: str) -> str:
    """A statement without its formulas' signs, its reason, its gloss and its emphasis."""
    line = _without_marks(line)
    kept: list[str] = []
    position = 0
    for formula in (*extract.FORMULA.finditer(line), None):
        plain = line[position : formula.start() if formula else len(line)]
        cuts = (match.start() for match in (_CUT.search(plain), _STOP.search(plain)) if match)
        cut = min((cut for cut in cuts if kept or cut > 0), default=None)
        kept.append(plain[:cut])
        if cut is not None or formula is None:
            break
        kept.append(_inside(formula))
        position = formula.end()
    return "".join(kept).strip(' \t\n`"*')


def _inside(formula: re.Match[str]) -> str:
    return next(group for group in formula.groups() if group is not None).strip()


def _without_marks(line: str) -> str:
    """Without emphasis; a typed power (`x**2`) is none."""
    return re.sub(r"^[*_>\s]+", "", _CLOSING_MARKS.sub("", _OPENING_MARKS.sub("", line)))


# ── closing sentences ────────────────────────────────────────────────────────


def _closing(text: str) -> str:
    """What the last sentence that holds mathematics says, if it is the last paragraph's."""
    lines = [line for line in text.strip().splitlines() if line.strip() and not _WISH.search(line)]
    if not lines:
        return ""
    paragraph = lines[-1]
    if paragraph.strip() in ("$$", "\\]"):
        paragraph = "\n".join(lines[-8:])
    return _sentence_value(_last_sentence(paragraph))


def _last_sentence(paragraph: str) -> str:
    """The last sentence; stops inside formulas and behind figures end none."""
    starts = [0]
    formulas = [match.span() for match in extract.FORMULA.finditer(paragraph)]
    stops = re.finditer(r"[.!?][*_\"')]*\s+(?=[A-Z$\\*])", paragraph)
    starts += [stop.end() for stop in stops if not any(start < stop.start() < end for start, end in formulas)]
    return paragraph[starts[-1] :]


def _sentence_value(sentence: str) -> str:
    gloss = _GLOSS.search(sentence)
    if gloss and re.search(r"[\d\\]", sentence[: gloss.start()]):
        sentence = sentence[: gloss.start()]
    formulas = list(extract.FORMULA.finditer(sentence))
    start = _group_start(sentence, formulas) if formulas else -1
    for verb in reversed(list(_VERB.finditer(sentence))):
        if any(formula.start() < verb.start() < formula.end() for formula in formulas):
            continue
        rest = sentence[verb.end() :].lstrip(" \t\n*_`\"':")
        begins = len(sentence) - len(rest)
        if begins < start:
            break
        if _begins_value(rest):
            return _value(rest)
    if start < 0:
        return ""
    scale = _SCALED.match(sentence, formulas[-1].end())
    return _value(sentence[start : scale.end() if scale else formulas[-1].end()])


def _group_start(sentence: str, formulas: list[re.Match[str]]) -> int:
    """Where the last formula begins, or the first of those that are joined to it."""
    start = formulas[-1].start()
    for formula in reversed(formulas[:-1]):
        # `$m/n$, and $m + n = 7$`: what was asked for stands behind it.
        alike = ("=" in formula.group()) == ("=" in formulas[-1].group())
        if not alike or not _joins(sentence[formula.end() : start]):
            break
        start = formula.start()
    return start


def _begins_value(text: str) -> bool:
    if _ARTICLE.match(text) or re.match(r"\$?\w+\$?-[a-z]", text):
        return False
    formula = extract.FORMULA.match(text)
    return formula is not None or _VALUE.match(text) is not None


def _last_value(text: str) -> str:
    """The last formula or number of the text, whichever is later; else its last line."""
    formula = number = None
    for formula in extract.FORMULA.finditer(text):  # noqa: B007 (the last match is wanted)
        pass
    for match in _NUMBER.finditer(text):
        if not _LABEL.search(text[max(0, match.start() - 12) : match.start()]):
            number = match
    if formula is not None and (number is None or number.start() < formula.end()):
        return _inside(formula)
    return number.group() if number else extract.last_line(text)
