"""Find the mathematical answer that a response states: boxed, announced, or in its closing sentence."""

from __future__ import annotations

import re
from typing import NamedTuple

from ops.grading import extract, latex, prose
from ops.grading.answering import extract_answer_part

_MOST = 12
"""Maximum number of announcements to read, from the end, since a response states its answer late."""
_BLOCK = 2_000
_SENTENCE = 300
_ALIGNED = re.compile(r"\\begin\{(align|gather|eqnarray|multline)\*?\}(.{1,4000}?)\\end\{\1\*?\}", re.DOTALL)
_MENTIONED = re.compile(
    r"\b(?:this|(?:check|verify|confirm|checking|verifying) (?:our|the|my|your|that(?: the| our)?)|such an|any|an)\s+$",
    re.IGNORECASE,
)
"""Words before an answer that is mentioned, not stated."""
_ANNOUNCES = re.compile(r"(?:the )?(?:final )?answer\b", re.IGNORECASE)
_ROUNDED = re.compile(r"\s*(?:approximately|roughly|about|nearly|around|≈|\\approx)", re.IGNORECASE)


_TELLS = re.compile(r"(?!\\).*\b(?:is|are|be|equals)\s")
_PLAIN = re.compile(
    r"[\s>#*_-]*(?:(?:so|thus|therefore|hence|finally|and|but|consequently|overall|now|in conclusion|the|our|my|"
    r"required|desired|exact)\b[\s,:*_]*)*|.*\b(?:final|correct|right|actual)\s+",
    re.IGNORECASE | re.DOTALL,
)
"""Words before "answer" in a sentence that only states the answer."""
_CONDITION = re.compile(
    r"\b(?:if|unless|suppos(?:e|ing)|assum(?:e|ing)|instead|alternative\w*|common(?: \w+)? (?:mistake|error|answer)|"
    r"(?:many|some|most) (?:students|people)|(?:might|may) (?:think|say|guess|expect)|tempt(?:ing|ed)|"
    r"(?:naive|wrong|incorrect) answer|(?:double|twice|triple|half) the answer|says (?:that )?the answer|"
    r"(?:related|analogous|similar|harder|easier|modified) (?:problem|question|version))\b|"
    r"(?:^|[(,:])[\s*_]*(?:had|were|without|otherwise)\b",
    re.IGNORECASE,
)
_UNREAL = re.compile(r"\b(?:would|could|might)\b", re.IGNORECASE)
_COMPUTATION = re.compile(r"(?=.*\d[\s)]*[-+*×·](?!\s*10\s*\^)[\s(]*\d)[\d\s()+*×·/.^-]+")
"""A calculation without its result; `6 × 10^{23}` and `1/2` are values."""


_CALCULATION = re.compile(r"<<[^<>\n]{1,200}>>")
"""A calculator's annotation in grade-school data: `<<9*2=18>>`."""
_MONEY = re.compile(r"(?<!\\)\$(?=[-+]?\.?\d)")
_PROSE = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{2,}(?![A-Za-z}])|[-+*/=×·][ \t]*$")


_OPENING_TEXT = re.compile(r"^\$?\s*\\(?:text(?:bf|it|rm|sf|normal)?|mathrm|mbox)\s*\{((?:[^{}\\]|\\ )*)\}")
_OPENING_LABEL = re.compile(r"(?!.*\b(?:not|wrong|incorrect)\b)[a-z ]{1,40}[:=]\s*$", re.IGNORECASE)


class StatedAnswer(NamedTuple):
    """An answer that is stated at `position`; it `is_firm` unless it only rounds a value or is a word.

    An answer in a box or after "Answer:" `is_formal`. It `is_conditional` if its sentence is about another case, and
    `is_hypothetical` if its sentence says what would be.
    """

    position: int
    value: str
    is_firm: bool
    is_formal: bool
    is_conditional: bool = False
    is_hypothetical: bool = False


def extract_stated_answer(response: str) -> str:
    """Return the last stated answer: in a box, after "Answer:" or "the answer is"; otherwise that of the closing
    sentence."""
    return _remove_phrase(_find_stated_answer(response))


def _remove_phrase(value: str) -> str:
    r"""Return `42` for `\text{The answer is } 42` or `\text{Total: } 42`."""
    opening = _OPENING_TEXT.match(value)
    words = opening[1].replace("\\ ", " ") if opening else ""
    rest = value[opening.end() :] if opening else value
    stripped = rest if _OPENING_LABEL.match(words) else extract.remove_answer_phrase(words + rest)
    return value if stripped == words + rest else stripped.removesuffix("$").strip()


def _find_stated_answer(response: str) -> str:
    text = _simplify_notation(
        extract_answer_part(
            response, lambda before: any(each.is_firm for each in _list_statements(_simplify_notation(before)))
        )
    )
    statements = _list_statements(text)
    if firm := [statement for statement in statements if statement.is_firm]:
        return _choose_final_value(text, firm)
    if (bare := extract.extract_last_box(text)) is not None:
        return bare
    whole = text.strip()
    if len(whole) < 200 and "\n" not in whole and latex.extract_words(latex.normalize_answer(whole).value) is None:
        return prose.remove_emphasis_marks(whole)
    closing = prose.extract_closing_value(text)
    if _COMPUTATION.fullmatch(closing):  # an unannounced calculation without its result
        return prose.extract_last_value(text)
    if statements and (
        not closing or not prose.VALUE.match(closing) or not _has_text_after(text, max(statements).position)
    ):
        return max(statements).value
    return closing or prose.extract_last_value(text)


def _list_statements(text: str) -> list[StatedAnswer]:
    boxes = extract.find_boxes(text)
    return [*_find_boxed_answers(text, boxes), *_find_announced_answers(text, boxes)]


def _choose_final_value(text: str, firm: list[StatedAnswer]) -> str:
    """Return the value that counts: the last one that does not only comment on an earlier one."""
    settled, *others = sorted(firm)
    for later in others:
        if settled.is_conditional or _replaces(text, settled, later):
            settled = later
    return settled.value


def _replaces(text: str, settled: StatedAnswer, later: StatedAnswer) -> bool:
    """Return whether `later` replaces `settled`. A value for another case never does; a sentence replaces a formal
    answer only if it corrects that answer or begins like "So the answer is".
    """
    corrected = extract.CORRECTION.search(text, settled.position, later.position) is not None
    if later.is_conditional and (later.is_hypothetical or not corrected):
        return False
    if later.is_formal or corrected:
        return True
    line_end = text.find("\n", settled.position, later.position)
    before = extract.extract_clause_before(text[line_end + 1 :], later.position - line_end - 1)
    is_plain = _PLAIN.fullmatch(before) is not None
    return (is_plain and not later.is_hypothetical) if settled.is_formal else (is_plain or not later.is_hypothetical)


def _simplify_notation(text: str) -> str:
    """Return the text with each group of aligned equations reduced to the last one, without calculators' notes."""
    return _ALIGNED.sub(_take_last_row, _escape_currency(_CALCULATION.sub("", text)))


def _escape_currency(text: str) -> str:
    r"""Write each currency sign as `\$`: a dollar sign before a digit, unless the next dollar sign ends a formula.

    The next dollar sign does not end a formula if it belongs to another
    amount or follows words or an operator: `$5 for one and $7`, `$5 + $7`.
    """
    pieces: list[str] = []
    position = 0
    formula = extract.FORMULA.search(text)
    while money := _MONEY.search(text, position):
        if formula and formula.start() < position:
            formula = extract.FORMULA.search(text, position)
        if formula and formula.start() < money.start():
            pieces.append(text[position : formula.end()])
            position = formula.end()
            continue
        line = text[money.end() : money.end() + _BLOCK].partition("\n")[0]
        inside, closes, behind = line.replace("\\$", "  ").partition("$")
        is_sum = re.match(r"[-+]?\.?\d", behind) or (inside[-1:].isspace() and _PROSE.search(inside))
        end = money.end() + (len(inside) + 1 if closes and not is_sum else 0)
        pieces.append(text[position : money.start()] + ("\\" if end == money.end() else "") + text[money.start() : end])
        position = end
    return "".join((*pieces, text[position:]))


def _take_last_row(aligned: re.Match[str]) -> str:
    rows = [row for row in aligned.group(2).split("\\\\") if row.strip()]
    if "box" in aligned.group(2) or not rows:
        return aligned.group()
    return "$$" + re.sub(r"^\s*(?:=|\\equiv)", "", rows[-1].replace("&", "")).strip() + "$$"


def _has_text_after(text: str, position: int) -> bool:
    """Return whether another paragraph with content follows the line at `position`."""
    _, _, rest = text[position:].lstrip().partition("\n")
    return bool(rest.strip()) and not prose.WISH.search(rest)


# ── boxes ────────────────────────────────────────────────────────────────────


def _find_boxed_answers(text: str, boxes: list[extract.Box]) -> list[StatedAnswer]:
    """Return the last box that is not a comment; boxes joined to it by "and", "or" or a comma form one list with it."""
    boxes = [box for box in boxes if box.content]
    if not boxes:
        return []
    while len(boxes) > 1 and all(_find_mood(text, boxes[-1].start, boxes[-1].end)):
        boxes.pop()
    last = boxes.pop()
    contents, start = [last.content], last.start
    while boxes and boxes[-1].end <= start and prose.is_list_joint(text[boxes[-1].end : start]):
        box = boxes.pop()
        start = box.start
        if box.content not in contents:
            contents.insert(0, box.content)
    return [StatedAnswer(last.start, ", ".join(contents), True, True, *_find_mood(text, last.start, last.end))]


# ── announcements ────────────────────────────────────────────────────────────


def _find_announced_answers(text: str, boxes: list[extract.Box]) -> list[StatedAnswer]:
    """Return the values after the last announcements outside of boxes."""
    announced = sorted((each.start, each.end, each.is_formal) for each in extract.find_announcements(text))
    statements = []
    for start, end, is_formal in announced[-_MOST:]:
        mentioned = _MENTIONED.search(text[max(0, start - 24) : start])
        if mentioned or any(box.start <= start < box.end for box in boxes):
            continue
        block = text[end : end + _BLOCK]
        rounded = _ROUNDED.match(block)
        line = _read_first_line(block[rounded.end() :] if rounded else block)
        value = prose.extract_value(line)
        is_word = prose.ARTICLE.match(value) is not None or not prose.VALUE.match(value)
        if is_formal and (is_word or _TELLS.match(value)):
            told = prose.extract_sentence_value(line)
            value = told or value
            is_word = is_word and not told and _is_sentence(value) and _has_text_after(text, end)
        if value and not _ANNOUNCES.match(value) and "boxed" not in value:
            mood = _find_mood(text, start, start if is_formal else end)
            statements.append(StatedAnswer(start, value, not rounded and not is_word, is_formal, *mood))
    return statements


def _is_sentence(value: str) -> bool:
    return prose.ARTICLE.match(value) is not None or len(re.findall(r"[A-Za-z]{2,}(?= )", value)) >= 4


def _find_mood(text: str, start: int, end: int) -> tuple[bool, bool]:
    """Return whether the sentence around a statement is about another case, and whether it is hypothetical.

    The condition of a hypothetical statement may be in an earlier sentence of the line.
    """
    line = text[max(0, start - _SENTENCE) : start].rpartition("\n")[2]
    before = re.split(r"(?<!\\)[.!?;](?=\s)", line)[-1].lstrip()
    after = text[end : end + _SENTENCE].partition("\n")[0] if end > start else ""
    stop = prose.STOP.search(after)
    sentence = before + text[start:end] + (after[: stop.start()] if stop else after)
    unreal = _UNREAL.search(sentence) is not None
    return any(_CONDITION.search(part) for part in ((line, sentence) if unreal else (sentence,))), unreal


def _read_first_line(block: str) -> str:
    """Return the first line with content, including the whole of a displayed formula or matrix in it."""
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
