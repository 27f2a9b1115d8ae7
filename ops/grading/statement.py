"""The mathematical answer that a response states: boxed, announced, or in its closing sentence."""

from __future__ import annotations

import re
from typing import NamedTuple

from ops.grading import announced, extract, latex, numerals, units

_MOST = 12
"""Announcements that are read, from the end: a response states its answer late."""
_BLOCK = 2_000
_SENTENCE = 300
_MARKED = re.compile(r"^[ \t]*####(?=[ \t]*[-\d$\\])", re.MULTILINE)
"""The mark before the answer in grade-school data."""
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
_STOP = re.compile(r"(?<!\\)[.!?](?=[*_`\"']*(?:\s|$))(?<!\b(?:in|ft|sq|cu|Rs)\.)")
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
_GLOSS = re.compile(r"[,(]?\s*(?:(?:which|that)\s+is\s+)?\(?\b(?:approximately|about|roughly)\s+(?=[-\d$\\])")
_VERB = re.compile(r"\b(?:is|are|be|equals|gives?|yields?|leaves|totals?|becomes)\b:?|(?<![<>!:=\\])=(?!=)|:(?=\s)")
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


_PLAIN = re.compile(
    r"[\s>#*_-]*(?:(?:so|thus|therefore|hence|finally|and|but|consequently|overall|now|in conclusion|the|our|my|"
    r"required|desired|exact)\b[\s,:*_]*)*|.*\b(?:final|correct|right|actual)\s+",
    re.IGNORECASE | re.DOTALL,
)
"""What stands before "answer" in a sentence that does nothing but state it."""
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
"""A sum that nobody has added up; `6 × 10^{23}` and `1/2` are values."""


_CALCULATION = re.compile(r"<<[^<>\n]{1,200}>>")
"""A calculator's annotation in grade-school data: `<<9*2=18>>`."""
_MONEY = re.compile(r"(?<!\\)\$(?=[-+]?\.?\d)")
_PROSE = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{2,}(?![A-Za-z}])|[-+*/=×·][ \t]*$")
_COUNTED = re.compile(
    r"(?P<number>[-+]?\s*(?P<money>\\?\$)?\d[\d,]*(?:\.\d+)?(?:/\d+)?%?)(?P<rest>(?:/[A-Za-z]|,?\s|[A-Za-z]{2})"
    r"[\w\s,.;:'’\"“”()%/–-]*)"
)
"""A number and the rest of a closing sentence, which is prose: `460 for this week's work`, `15 liters of water`."""
_NUMERAL = r"[-+$\\]*(?:\d|(?:" + "|".join(numerals.VALUES) + r"|half|twice|double|triple|thrice)\b)"
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
"""Words that make another value of the number before them, another number that may be meant, and unknowns."""
_CLAUSE = re.compile(r",?\s+(?:that|which|who|whose|while|when|until)\b")
_SHARE = re.compile(
    r"^\s*(?:(?:for|in|of|from|per)(?:\s+the|\s+an?|\s+every)?\s+(?:\d|[a-z]+\W*$)|in\s+(?:every|an?)\b)"
)
"""`5 for 3`, `1 in a million`, `2 of the 7`: a ratio, a chance or a share; of money it is what is bought."""
_AMONG = re.compile(
    r"\b(?:in|for|from|by|after|before|with|per|to\s+[a-z]+)(?:\s+the)?\s+\d[\d,]*\s+[A-Za-z]{2,}"
    r"(?:\s+and\s+\d[\d,]*\s+[A-Za-z]{2,})?|\bof\s+the\s+\d+\s+[a-z]{2,}"
)
"""A further number that only says when, where or what for: `26 inches in 13 years`."""


_OPENING_TEXT = re.compile(r"^\$?\s*\\(?:text(?:bf|it|rm|sf|normal)?|mathrm|mbox)\s*\{((?:[^{}\\]|\\ )*)\}")
_OPENING_LABEL = re.compile(r"(?!.*\b(?:not|wrong|incorrect)\b)[a-z ]{1,40}[:=]\s*$", re.IGNORECASE)


class StatedAnswer(NamedTuple):
    """A stated answer at `position`; `firm` unless it only rounds a value or is a word.

    It is `formal` in a box or behind "Answer:", `conditional` where its sentence names another case, and `unreal`
    where it says what would be.
    """

    position: int
    value: str
    firm: bool
    formal: bool
    conditional: bool = False
    unreal: bool = False


def stated(response: str) -> str:
    r"""The answer that is stated last: in a box, behind "Answer:" or "the answer is"; else the closing sentence's."""
    return _without_phrase(_stated(response))


def _without_phrase(value: str) -> str:
    r"""`42` for `\text{The answer is } 42` or `\text{Total: } 42`."""
    opening = _OPENING_TEXT.match(value)
    words = opening[1].replace("\\ ", " ") if opening else ""
    rest = value[opening.end() :] if opening else value
    told = rest if _OPENING_LABEL.match(words) else announced.without_phrase(words + rest)
    return value if told == words + rest else told.removesuffix("$").strip()


def _stated(response: str) -> str:
    text = _spoken(extract.tail(response))
    boxes = extract.boxes(text)
    statements = [*_boxed(text, boxes), *_announced(text, boxes)]
    firm = [statement for statement in statements if statement.firm]
    if firm:
        return _settled(text, firm)
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


def _settled(text: str, firm: list[StatedAnswer]) -> str:
    """The value that holds: the last one that is no remark on it."""
    settled, *others = sorted(firm)
    for later in others:
        if settled.conditional or _replaces(text, settled, later):
            settled = later
    return settled.value


def _replaces(text: str, settled: StatedAnswer, later: StatedAnswer) -> bool:
    """Whether `later` replaces `settled`: another case replaces nothing, a sentence a formal answer only where it
    corrects it or says no more than "So the answer is".
    """
    corrected = announced.CORRECTION.search(text, settled.position, later.position) is not None
    if later.conditional and (later.unreal or not corrected):
        return False
    if later.formal or corrected:
        return True
    line_end = text.find("\n", settled.position, later.position)
    before = announced.clause(text[line_end + 1 :], later.position - line_end - 1)
    is_plain = _PLAIN.fullmatch(before) is not None
    return (is_plain and not later.unreal) if settled.formal else (is_plain or not later.unreal)


def _spoken(text: str) -> str:
    """What follows a thought, aligned equations as the last of them."""
    text = extract.after_thought(text)
    return _ALIGNED.sub(_last_row, _with_money(_CALCULATION.sub("", text)))


def _with_money(text: str) -> str:
    r"""Each currency sign as `\$`: a dollar sign before a figure where the next one ends no formula.

    The next one is another amount's, or words or an operation stand before it: `$5 for one and $7`, `$5 + $7`.
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
    """The last box that is no remark; boxes joined to it by "and", "or" or a comma are one list with it."""
    boxes = [box for box in boxes if box.content]
    if not boxes:
        return []
    while len(boxes) > 1 and all(_mood(text, boxes[-1].start, boxes[-1].end)):
        boxes.pop()
    last = boxes.pop()
    contents, start = [last.content], last.start
    while boxes and boxes[-1].end <= start and _joins(text[boxes[-1].end : start]):
        box = boxes.pop()
        start = box.start
        if box.content not in contents:
            contents.insert(0, box.content)
    return [StatedAnswer(last.start, ", ".join(contents), True, True, *_mood(text, last.start, last.end))]


# ── announcements ────────────────────────────────────────────────────────────


def _announced(text: str, boxes: list[extract.Box]) -> list[StatedAnswer]:
    """What follows each of the last announcements that stand in no box, where it says something."""
    marked = [announced.Announcement(match.start(), match.end(), True) for match in _MARKED.finditer(text)]
    statements = []
    for start, end, is_formal in sorted((*announced.announcements(text), *marked))[-_MOST:]:
        mentioned = _MENTIONED.search(text[max(0, start - 24) : start])
        if mentioned or any(box.start <= start < box.end for box in boxes):
            continue
        block = text[end : end + _BLOCK]
        rounded = _ROUNDED.match(block)
        value = _value(_line(block[rounded.end() :] if rounded else block))
        if value and not _ANNOUNCES.match(value) and "boxed" not in value:
            is_word = (not is_formal and not _VALUE.match(value)) or _ARTICLE.match(value) is not None
            mood = _mood(text, start, start if is_formal else end)
            statements.append(StatedAnswer(start, value, not rounded and not is_word, is_formal, *mood))
    return statements


def _mood(text: str, start: int, end: int) -> tuple[bool, bool]:
    """Whether the sentence around a statement names another case, and whether it says what would be.

    What would be may depend on a case that an earlier sentence of the line names.
    """
    line = text[max(0, start - _SENTENCE) : start].rpartition("\n")[2]
    before = re.split(r"(?<!\\)[.!?;](?=\s)", line)[-1].lstrip()
    after = text[end : end + _SENTENCE].partition("\n")[0] if end > start else ""
    stop = _STOP.search(after)
    sentence = before + text[start:end] + (after[: stop.start()] if stop else after)
    unreal = _UNREAL.search(sentence) is not None
    return any(_CONDITION.search(part) for part in ((line, sentence) if unreal else (sentence,))), unreal


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
            return _counted(_value(rest))
    if start < 0:
        return ""
    scale = _SCALED.match(sentence, formulas[-1].end())
    return _value(sentence[start : scale.end() if scale else formulas[-1].end()])


def _counted(value: str) -> str:
    """A number and its unit without the rest of its sentence, where that neither changes nor replaces it."""
    match = _COUNTED.fullmatch(_CLAUSE.split(value)[0])
    if match is None:
        return value
    rest = _AMONG.sub("", match["rest"])
    if _CHANGES.search(rest) or re.search(r"\d", rest) or (not match["money"] and _SHARE.match(match["rest"])):
        return value
    return _measured(match["number"], match["rest"])


def _measured(number: str, behind: str) -> str:
    """A number with the unit that stands behind it, if any."""
    unit = units.longest(behind.lstrip())
    return f"{number} {unit}" if len(unit) > 1 and unit.isalpha() else number


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
    if number is None:
        return extract.last_line(text)
    return _measured(number.group(), text[number.end() : number.end() + 60].partition("\n")[0])
