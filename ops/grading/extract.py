"""Find the parts of a response in which answers are stated: boxes, formulas, the last line, and announcements.

An answer is announced by "Answer: …", a box, a tag, a JSON field, a heading, or "the answer is …".
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from typing import Literal, NamedTuple

TAIL_CHARACTERS = 60_000
"""The number of characters at the end of a response that are read, because the answer is there."""

_BOXED = re.compile(r"\\(?:f?boxed|fbox|framebox)[ \t]*$")
_BOXED_BARE = re.compile(r"\\f?boxed[ \t]+([^\s{}$\\]+)")
FORMULA = re.compile(
    r"(?<!\\)\$\$((?:\\.|[^$\\]){1,2000})\$\$|(?<!\\)\$((?:\\[^\n]|[^$\\\n]){1,2000})\$"
    r"|\\\(((?:\\\\|(?!\\[()])[^\n]){1,2000})\\\)|\\\[((?:\\\\|(?!\\[\[\]]).){1,2000})\\\]",
    re.DOTALL,
)
"""A formula between its signs; a dollar sign after a backslash is money."""


def take_tail(response: str) -> str:
    """Return the last `TAIL_CHARACTERS` characters of a response."""
    return response[-TAIL_CHARACTERS:]


class Box(NamedTuple):
    r"""A box `\boxed{content}` or `\fbox{content}` between the positions `start` and `end`."""

    start: int
    end: int
    content: str


def find_boxes(text: str) -> list[Box]:
    """Return the balanced boxes of `text` in the order of their opening; a box inside a box comes after it."""
    if "box" not in text:
        return []
    balanced: list[Box] = []
    stack: list[tuple[int, int | None]] = []
    position = 0
    while position < len(text):
        char = text[position]
        if char == "\\" and position + 1 < len(text) and text[position + 1] in "\\{}":
            position += 2
            continue
        if char == "{":
            window = max(0, position - 14)
            command = _BOXED.search(text[window:position])
            stack.append((position, window + command.start() if command else None))
        elif char == "}" and stack:
            brace, start = stack.pop()
            if start is not None:
                balanced.append(Box(start, position + 1, text[brace + 1 : position].strip()))
        position += 1
    return sorted(balanced)


def extract_last_box(response: str) -> str | None:
    r"""Return the content of the last balanced `\boxed{…}` (or `\fbox`); None if there is no box."""
    text = take_tail(response)
    if balanced_boxes := find_boxes(text):
        return balanced_boxes[-1].content
    bare = None
    for bare in _BOXED_BARE.finditer(text):  # noqa: B007 (the last match is wanted)
        pass
    return bare.group(1) if bare else None


def extract_last_line(response: str) -> str:
    """Return the last line with content; "" if there is none."""
    for line in reversed(take_tail(response).splitlines()):
        if line.strip("*_` \t\r") and (bare := remove_emphasis(line)):
            return bare
    return ""


_EMPHASIS = {
    mark: (
        re.compile(rf"(?<![\w*^]){re.escape(mark)}(?![\s*_])"),
        re.compile(rf"(?<=[^\s*_]){re.escape(mark)}(?![\w*])"),
    )
    for mark in ("***", "**", "__", "`", "*", "_")
}
"""Mark of emphasis → its opening and its closing form, so that `M*`, `2*3` and `x_1` are none."""


def remove_emphasis(line: str, before: str = "") -> str:
    """Return a line without the marks of emphasis around it; the text before it (`before`) may have opened some of
    them."""
    line = line.strip()
    for mark, (opening, closing) in _EMPHASIS.items():
        inner = line[len(mark) : -len(mark)]
        if len(opening.findall(before)) > len(closing.findall(before)):
            closed = line.rstrip(".,;:!")
            closes = closing.search(line)
            place = closes.start() if closes else len(closed) - len(mark) if closed.endswith(mark) else len(line)
            line = line[:place] + line[place + len(mark) :]
        elif line.startswith(mark) and line.endswith(mark) and inner.strip() and mark not in inner:
            line = inner
    return line.strip()


MAX_STATEMENT_CHARACTERS = 1_000
"""The maximum length of a statement in characters; longer ones are cut."""
_EMPTY = "*_ \t:$\\[(\"'`"
"""Characters of a line on which an announced answer has not begun."""
MAX_ANNOUNCEMENTS = 20
"""The maximum number of announcements of each kind that are returned; the last ones are."""

_FORMATTING = re.compile(r"</?(b|strong|i|em|u|span|font|mark|small|center|big)\b[^>\n]{0,60}>", re.IGNORECASE)
_BREAK = re.compile(r"</?(?:p|div|br|li|ul|ol|h\d)\b[^>\n]{0,60}>", re.IGNORECASE)
_STRUCK = re.compile(r"~~[^~\n]{1,200}~~|<(s|del|strike)>[^<\n]{1,200}</\1>", re.IGNORECASE)

_QUANTIFIED = re.compile(
    r"\b(?:each|every|all|any|other|another|these|those|both|either|neither|remaining|possible|candidate|given|listed|"
    r"wrong|incorrect|next|previous|of|following|no)(?:[ \t]+the)?[ \t*_]*$",
    re.IGNORECASE,
)
"""Words before an announcing noun that speaks of several answers or of another one."""
_LEAD = re.compile(
    r"[^\w\n]*(?:(?:so|thus|therefore|hence|then|and|now|finally|overall|in (?:conclusion|short|"
    r"summary)|here(?:['’]s| is)|is|this|the|a|my|our|your|his|short|single|one|final|correct|right|best|only|exact|"
    r"required|desired|requested|numerical|numeric)\b[^\w\n]*)*"
    r"|(?!\W*to\b).*\b(?:is|are|gives?|giving|gets?|getting|yields?|obtain|have|leaves|becomes|reach|arrive at)"
    r"(?:[ \t]+(?:us|me|with|the|my|our|a|final|correct|right|best|only|exact))*[ \t*_]*",
    re.IGNORECASE,
)
"""Words before an announcing noun whose answer is on a later line. Other words introduce a list or a step."""
_NOUN = (
    r"(?:answer|ans|réponse|reponse|antwort|respuesta|resposta|risposta|odpowiedź|ответ|javob|cevap|"
    r"答案|回答|答え|正解|정답|"
    r"(?:correct|right|best|final|my|your|chosen|selected)[ _-](?:option|choice|letter|pick|guess)|"
    r"(?<!\w)(?:option|choice|letter|selection)(?=[ \t*_\"'`]{0,6}[:=]))s?"
)
# A pattern that can begin with any word is tried at every character; the letters before it make that cheap.
_BEGIN = r"(?=[arocbflmys答回正정о])(?<![^\W_])"
_FORM = re.compile(
    _BEGIN + _NOUN + r"(?:[ \t*_\"'`)\]]{0,6}(?:[:=→⇒|]|[-=]>)|[ \t*_]{0,6}[—–-](?=[ \t]))[ \t*_]{0,6}", re.IGNORECASE
)
_HEADING = re.compile(
    r"^[ \t>#*_]*(?:(?:the|my|final|correct|short)[ \t]+){0,3}" + _NOUN + r"[ \t*_]*$", re.IGNORECASE | re.MULTILINE
)
_TOLD = re.compile(
    _BEGIN + _NOUN + r"(?:[ \t]+(?:here|correcta?|correcte|exacta?|finale?|choice|option|letter|"
    r"to (?:this|the) (?:question|problem|multiple[- ]choice question)))?"
    r"[ \t*_\"]{0,6}(?:(?:is|are|was|would be|should be|must be|will be|has to be|can only be|ought to be|"
    r"seems to be|appears to be|turns out to be|lautet|ist|est|es|è|é|это)(?![^\W\d_])|"
    r"是|は|为|应为|应该是|['’]s(?=[ \t]))"
    r"(?!n't)(?:[ \t]+(?:therefore|thus|then|simply|just)(?=[ \t]))?[ \t]*:?[ \t*_]{0,6}",
    re.IGNORECASE,
)
_TAG = re.compile(
    r"<((?:final[_ -]?|correct[_ -]?)?(?:answer|choice|option|letter))>(.{0,2000}?)(?:</\1>|\Z)", re.I | re.S
)
_ASIDE = re.compile(
    r"\b(?:if|whether|suppose|assum\w+|might|may|could|perhaps|at first|initially|originally|students?|someone|"
    r"people|(?:common|typical|frequent|usual|easy) (?:mistake|error)|"
    r"tempt\w*|previous(?:ly)?|earlier|first (?:thought|instinct|guess|answer)|wrong|incorrect|when|unless|why|form|"
    r"format)\b",
    re.IGNORECASE,
)
CORRECTION = re.compile(
    r"\b(?:wait|actually|correction|nope|sorry|oops|scratch that|hmm|on second thought|on reflection|revis\w*|"
    r"(?<!common )(?<!typical )(?<!frequent )(?<!usual )(?<!easy )(?:mistaken?|error)|change my|let me correct|"
    r"reconsider\w*|re-?(?:evaluat|check|count|comput|calculat)\w*|i was wrong|"
    r"(?:this|that|it|which|answer|above) (?:is|was) (?:wrong|incorrect|not (?:right|correct)))\b"
    r"|(?:^|[.!?:;,\n(—–-])[ \t*_]*(?:oh,? |but )?no(?=[,.:;!—–-]|\s+(?:wait|that|the|it|this)\b|\s*$)",
    re.IGNORECASE,
)
"""Words that retract an earlier statement."""
_SENTENCE_END = re.compile(
    r"[.;!?\n](?=[\"'”’)\]*_]{0,4}(?:\s|$))|[。!?]|,(?=\s+(?:but|so|however|therefore|thus|hence|yet)\b)", re.IGNORECASE
)


_OPTION = re.compile(r"[ \t>*_-]{0,6}[(\[*_]{0,3}[A-Z](?:[)\].:*_]|[ \t]*$)", re.MULTILINE)
"""The beginning of a line that names an option by its letter."""


class Statement(NamedTuple):
    """What an announcement states: `text` is one line (all of a tag or a box), and `start` is where it is announced.

    It `is_formal` if it has a form that is asked for, such as "Answer: …"; otherwise it is a sentence, such as "the
    answer is …".
    """

    start: int
    end: int
    text: str
    is_formal: bool


class Announcement(NamedTuple):
    """The span of an announcement, such as "Answer:"; the announced text begins at `end`."""

    start: int
    end: int
    kind: Literal["form", "heading", "tag", "sentence"]
    content_end: int = 0
    """The end of a tag's content; 0 for another kind, whose text ends with its line."""

    @property
    def is_formal(self) -> bool:
        """True if it has a form that is asked for, as in `Statement`."""
        return self.kind != "sentence"


def remove_html(text: str) -> str:
    """Return the text without HTML emphasis, whose tags come in pairs, and without struck-out text."""
    if "<" not in text and "~~" not in text:
        return text
    closed = set(re.findall(r"</(\w+)>", text.casefold()))
    text = _FORMATTING.sub(lambda tag: "" if tag[1].casefold() in closed else tag[0], text)
    return _STRUCK.sub(" ", _BREAK.sub("\n", text))


def find_announcements(text: str) -> list[Announcement]:
    """Return the announcements in `text` except boxes: forms, headings, tags, then sentences.

    At most the last `MAX_ANNOUNCEMENTS` of each kind are returned.
    """
    return [
        *(Announcement(*match.span(), "form") for match in _last_matches(_FORM, text) if _is_announcement(text, match)),
        *(Announcement(*match.span(), "heading") for match in _last_matches(_HEADING, text)),
        *(Announcement(match.start(), match.start(2), "tag", match.end(2)) for match in _last_matches(_TAG, text)),
        *(Announcement(*match.span(), "sentence") for match in _last_matches(_TOLD, text)),
    ]


def find_statements(text: str) -> list[Statement]:
    """Return the statements of the announcements and boxes in `text`, in order.

    A sentence inside a formal statement is left out, and so is one about another person's answer or another case. At
    most the last `MAX_ANNOUNCEMENTS` of each kind are returned.
    """
    announced = find_announcements(text)
    formal = [_read_statement(text, each) for each in announced if each.is_formal]
    formal += [
        Statement(box.start, box.end, box.content[:MAX_STATEMENT_CHARACTERS], True)
        for box in find_boxes(text)[-MAX_ANNOUNCEMENTS:]
    ]
    sentences = [
        _read_statement(text, each)
        for each in announced
        if not each.is_formal
        and not is_hypothetical(extract_clause_before(text, each.start))
        and not any(statement.start <= each.start < statement.end for statement in formal)
    ]
    return sorted((s for s in (*formal, *sentences) if s.text), key=lambda statement: (statement.start, statement.end))


def extract_text_after_announcement(text: str) -> str:
    """Return all text after the last "Answer:" or "the answer is"; "" if there is neither."""
    found = {each.kind: each for each in find_announcements(text)}
    last = found.get("form") or found.get("sentence")
    return text[last.end :].strip() if last else ""


def extract_clause_before(text: str, position: int) -> str:
    """Return the part of a clause that stands before `position`, at most 160 characters long."""
    before = text[max(0, position - 160) : position]
    ends = list(_SENTENCE_END.finditer(before))
    return before[ends[-1].end() :] if ends else before


def is_hypothetical(before: str) -> bool:
    """Return whether the beginning of a clause marks the rest as another person's answer or as another case."""
    return _ASIDE.search(before) is not None


def remove_answer_phrase(line: str) -> str:
    """Return the line without "The answer is" at its beginning, as in "Answer: The final answer is 5"."""
    match = _TOLD.search(line[:200])
    if match and re.fullmatch(
        r"[\W_]*(?:(?:so|thus|therefore|hence|the|my|our|final|correct|right|"
        r"best)[\s,]+)*",
        line[: match.start()],
        re.I,
    ):
        return line[match.end() :].strip()
    return line


def _is_announcement(text: str, form: re.Match[str]) -> bool:
    """Return whether "…answer:" announces what follows, and does not introduce a list or a step of a solution."""
    line = text[text.rfind("\n", 0, form.start()) + 1 : form.start()]
    before = extract_clause_before(line, len(line))
    is_heading = not text[form.end() : find_line_end(text, form.end())].strip(_EMPTY)
    return not _QUANTIFIED.search(before) and (not is_heading or _LEAD.fullmatch(before) is not None)


def _last_matches(pattern: re.Pattern[str], text: str) -> Iterable[re.Match[str]]:
    return deque(pattern.finditer(text), MAX_ANNOUNCEMENTS)


def _read_statement(text: str, announced: Announcement) -> Statement:
    """Return a tag's content, or the rest of the announcement's line, or the next line that is not empty."""
    if announced.content_end:
        end = (
            text.find(">", announced.content_end) + 1 or announced.content_end
        )  # without a closing tag: the end of the text
        return Statement(
            announced.start, end, text[announced.end : announced.content_end].strip()[:MAX_STATEMENT_CHARACTERS], True
        )
    end = find_line_end(text, announced.end)
    line = text[announced.end : end]
    if not line.strip(_EMPTY):
        rest = text[end:]
        start = end + len(rest) - len(rest.lstrip())
        if text.startswith(("$$", "\\["), start):
            start = start + 2 + len(text[start + 2 :]) - len(text[start + 2 :].lstrip())
        end = find_line_end(text, start)
        while end < len(text) and _OPTION.match(text, start) and _OPTION.match(text, end + 1):
            end = find_line_end(text, end + 1)
        line = text[start:end].replace("\n", ", ")
    before = text[text.rfind("\n", 0, announced.start) + 1 : announced.end]
    return Statement(
        announced.start, end, remove_emphasis(line, before)[:MAX_STATEMENT_CHARACTERS], announced.is_formal
    )


def find_line_end(text: str, position: int) -> int:
    """Return the position of the end of the line at `position`."""
    end = text.find("\n", position)
    return len(text) if end < 0 else end
