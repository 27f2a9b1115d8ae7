"""Multiple choice: find the letter that a response finally states.

"Answer: X" has priority over sentences, unless a later sentence retracts it. The last statement has priority over
earlier ones. A letter that is only mentioned counts if it is the only one.
"""

from __future__ import annotations

import re
import string
import unicodedata
from itertools import pairwise
from typing import NamedTuple

from ops.core.problem import Grade, Problem
from ops.grading import extract, labels
from ops.grading.answering import extract_answer_part
from ops.grading.grader import Grader

PROSE_CHARACTERS = 12_000
"""The number of characters at the end of a response that are searched for sentences that affirm a letter."""
SHORT_RESPONSE_CHARACTERS = 400
"""The maximum length in characters of a response that may consist only of the answer."""

_WRAPPED = re.compile(
    r"\\(?:text(?:bf|rm|it|tt|sf|normal)?|math(?:rm|bf|it|sf|tt)|mbox|operatorname|underline|emph|bf|"
    r"rm)\s*\{([^{}]*)\}"
)
_FORMULA = re.compile(r"(?:\$\$?|\\[(\[])\s*\(?([A-Za-z])\)?[.]?\s*(?:\$\$?|\\[)\]])")
_OPENING = re.compile(
    r"[\W_]*(?:(?:the|most|very|likely|probably|clearly|therefore|thus|hence|then|indeed|definitely|certainly|"
    r"actually|simply|obviously|"
    r"best|correct|right|final|answer|option|choice|letter|is|again|still|also|surely|only|just|presumably|perhaps|"
    r"maybe|either|both|"
    r"between|i|think|believe|would|say|it|be|it['’]s)\b[\W_]*){0,6}",
    re.IGNORECASE,
)
_SMALL = re.compile(
    r"[\W_]*(?:(?:the )?(?:option|choice|letter|answer)\s*:?\s*)?[\W_]*([a-z])(?=[\W_]*$|\s*[).:,;\]}–—]|"
    r"\s+(?:because|since)\b)",
    re.IGNORECASE,
)
_JOINED = re.compile(r"[\s$\\)(*_.]*(?:,|;|/|&|\bor\b|\band\b)[\s$\\)(*_]*", re.IGNORECASE)
"""Text between two boxes that are one answer."""
_LABEL_LINE = re.compile(
    r"[ \t>#]*(?:[-*•+][ \t]+)?[\"'“`*_\[(|→]{0,4}(?:(?:option|choice|answer|"
    r"letter)[ \t:]+)?[\"'“`*_\[(]{0,4}(?P<letter>[A-Za-z])"
    r"[\"'”`*_\])]{0,4}(?P<stop>[.:,;]|[ \t]*[-–—|]|)[\"'”`*_\])]{0,4}(?:[ \t]+(?P<text>\S.*))?",
    re.IGNORECASE,
)
_ITEM = re.compile(
    r"^[ \t>]*(?:[-*•+][ \t]+)?[*_(\[]{0,3}(?P<letter>[A-Z])(?:[)\]]|[.:](?=[ \t*]|$))[*_]{0,3}[ \t]*(?P<text>\S.*|)$",
    re.MULTILINE,
)
_MARK = re.compile(
    r"✓|✔|✅|☑|←|<--?|\[x\]|\((?:the )?(?:correct|right|my|best|this)\b[^()\n]*\)|[-–—:→]\s*\**(?:correct|right|"
    r"yes)\b|"
    r"^\**(?:this (?:one |option |choice )?is )?(?:the )?(?:correct|right|yes)\b",
    re.IGNORECASE,
)
_BOLD = re.compile(r"^[ \t>]*(?:[-*•+][ \t]+)?(?:\*\*|__).*(?:\*\*|__)[ \t]*$")
_NOT_BEFORE = re.compile(
    r"(?:\bnot|n't|\bnever|\bneither|\bnor|\brather than|\binstead of|\bunlike|\bexcept|"
    r"\bthan)(?:\s+(?!but\b)\w+){0,2}\s*$"
)
_NOT_AFTER = re.compile(
    r"\s*(?:(?:is|are|was|were|does|do|can|could|would)\s+(?:\w+\s+)?(?:not|never|wrong|incorrect|false|impossible|out)|"
    r"cannot|isn|aren|wasn|doesn|fails|contradicts)\b"
)
_ABSENT = re.compile(
    r"\W*(?:not (?:\w+ ){0,2}(?:in|among|listed|given|provided|available|included)|none of)\b", re.IGNORECASE
)
_NOISE = re.compile(r"[^\w%.+/<>=-]+|(?<!\d)\.|\.(?!\d)")
_QUOTING = re.compile(
    r"(?<![\w\\(\[])[(\[]?(?P<letter>[A-Za-z])"
    r"(?:[)\]*_`]{1,4}[.:,;]?[*_]{0,3}|[.:,;|][*_]{0,3}|[ \t]+[-–—|]|(?=[ \t]+\())[\s\\(\[\"'“`*_$]*"
)
"""A label and the text allowed between it and its choice."""
_BEHIND = re.compile(r"[(\[](?P<letter>[A-Z])[)\]]")
"""A label in brackets after the text of its choice."""
_WORD = re.compile(r"\w+")
_SENTENCE_END = re.compile(r"(?<=[.!?])[*_\"'”’)]*\s+(?=[^\W\d_])")
_FINISHED = re.compile(r"[.!][\s\"'”’)\]}$]*$")
_NEXT_LINE = re.compile(r"\n(?!\s*(?:or|also|maybe|perhaps|possibly|alternatively)\b)", re.IGNORECASE)
"""The end of a line whose next line does not offer another letter beside one that is stated."""
_MIN_QUOTED_WORDS = 3
"""A choice that is quoted with fewer of its first words must be quoted in full."""


class StatedLetter(NamedTuple):
    """A letter that the response states from `start` to `end`; "" if it hedges or denies.

    It `is_formal` if it has a form that is asked for, such as "Answer: C".
    """

    start: int
    end: int
    letter: str
    is_formal: bool = False


def find_answer(problem: Problem, response: str) -> str:
    """Return the letter in upper case; "" if there is none, or if several are offered as the answer."""
    return (
        _find_final_letter(
            problem, extract_answer_part(response, lambda before: _find_final_letter(problem, before) is not None)
        )
        or ""
    )


def _find_final_letter(problem: Problem, answer: str) -> str | None:
    """Return the letter that a text finally states; "" if it hedges or denies; None if it states nothing."""
    letters, choices = list_choice_letters(problem), problem.choices
    if len(answer) <= SHORT_RESPONSE_CHARACTERS and (
        letter := _letter_of_equal_choice(extract.remove_html(answer), choices)
    ):
        return letter
    text = _normalize(answer, choices)
    readings = _find_stated_letters(text, letters, choices)
    if formal := [reading for reading in readings if reading.is_formal]:
        return _apply_corrections(text, formal[-1], readings)
    if readings:
        return readings[-1].letter
    return _read_letter_of_last_line(_blank_out_lists(text, letters)[0], letters, choices)


def grade_answer(problem: Problem, answer: str) -> Grade:
    """Compare the letter with the gold letter."""
    if not answer:
        return Grade(0.0, "", "no single letter found")
    gold = problem.answer.strip().strip("().").upper()
    if answer == gold:
        return Grade(1.0, answer, "same letter")
    return Grade(0.0, answer, f"the answer is {gold}")


def list_choice_letters(problem: Problem) -> str:
    """Return the letters of the choices; ten letters if the choices are only in the question's text."""
    return string.ascii_uppercase[: len(problem.choices) or 10]


def read_stated_letter(line: str, letters: str, choices: tuple[str, ...]) -> str | None:
    """Return the letter that an announced `line` states; "" if it hedges or denies; None if it names no choice."""
    line = extract.remove_answer_phrase(line)
    if line.lower().startswith("also "):  # beside one that is stated before
        return ""
    if letter := _letter_of_equal_choice(line, choices):
        return letter
    line = _FORMULA.sub(r"(\1)", _unwrap_latex(line))
    if labels.offers_several_labels(line, letters) and not extract.CORRECTION.search(line):
        return ""
    groups = labels.find_letter_groups(line, letters, ignore_context=True)
    if not groups or not _OPENING.fullmatch(line, 0, groups[0].start):
        small = _SMALL.match(line)
        if small and small[1].upper() in letters and not _is_article_of_choice(line, small.end(1), choices):
            return small[1].upper()
    if groups and _OPENING.fullmatch(line, 0, groups[0].start):
        return _read_letter_at_start(line, groups)
    if quoted := _letter_of_labelled_choice(line, letters, choices) or _letter_of_mentioned_choice(line, choices):
        return quoted
    return _read_letter_inside(labels.find_letter_groups(line, letters)) or (
        "" if groups or _ABSENT.match(line) else None
    )


def _normalize(text: str, choices: tuple[str, ...]) -> str:
    return _shorten_quotations(_unwrap_latex(unicodedata.normalize("NFKC", extract.remove_html(text))), choices)


def _find_stated_letters(text: str, letters: str, choices: tuple[str, ...]) -> list[StatedLetter]:
    """Return what the text states about choices, in order.

    Only the last of the formal statements and the last of the announced sentences are included.
    """
    readings: list[StatedLetter] = []
    statements = extract.find_statements(text)
    for formal in (True, False):
        stated_letters = [
            StatedLetter(each.start, each.end, letter, formal)
            for each in statements
            if each.is_formal is formal and (letter := read_stated_letter(each.text, letters, choices)) is not None
        ]
        readings += stated_letters[-1:]
        for earlier, last in pairwise(stated_letters[-2:]):
            if formal and earlier.letter != last.letter and _JOINED.fullmatch(text, earlier.end, last.start):
                readings[-1] = last._replace(letter="")
    prose, marked = _blank_out_lists(text, letters)
    readings += marked + _find_letter_lines(prose, letters, choices) + _find_affirmed_letters(prose, letters)
    return sorted(readings, key=lambda reading: reading.start)


def _find_affirmed_letters(text: str, letters: str) -> list[StatedLetter]:
    """Return the statements of sentences near the end of the text; two letters together state none."""
    before = max(0, len(text) - PROSE_CHARACTERS)
    return [
        StatedLetter(before + group.start, before + group.end, group.letters if len(group.letters) == 1 else "")
        for group in labels.find_letter_groups(text[before:], letters)
        if group.stance == "affirmed"
    ]


def _read_letter_at_start(line: str, groups: list[labels.LetterGroup]) -> str:
    """Return the letter of a line that begins with one."""
    first, later = groups[0], groups[1:]
    affirmed = [group.letters for group in later if group.stance == "affirmed"]
    if first.stance in ("denied", "asked"):
        open_letters = {letter for group in later if group.stance == "named" for letter in group.letters}
        if affirmed:
            return affirmed[-1] if len(affirmed[-1]) == 1 else ""
        if first.stance == "asked" and not later:
            return first.letters if len(first.letters) == 1 else ""
        return open_letters.pop() if len(open_letters) == 1 else ""
    affirmed_later = [group for group in later if group.stance == "affirmed"]
    corrections = [group for group in affirmed_later if extract.CORRECTION.search(line, first.end, group.start)]
    if corrections:
        return corrections[-1].letters if len(corrections[-1].letters) == 1 else ""
    return first.letters if len(first.letters) == 1 else ""


def _read_letter_inside(groups: list[labels.LetterGroup]) -> str | None:
    """Return the letter of a line that names letters, but not at its beginning."""
    affirmed = [group.letters for group in groups if group.stance == "affirmed"]
    if affirmed:
        return affirmed[-1] if len(affirmed[-1]) == 1 else ""
    named = {letter for group in groups if group.stance != "denied" for letter in group.letters}
    if len(named) == 1:
        return named.pop()
    return "" if groups and not named else None


def _apply_corrections(text: str, formal: StatedLetter, readings: list[StatedLetter]) -> str:
    """Return the formal statement's letter, or that of a later sentence after words of retraction."""
    later = [
        reading
        for reading in readings
        if reading.start >= formal.end and extract.CORRECTION.search(text, formal.end, reading.end)
    ]
    if later:
        return later[-1].letter
    behind = _NEXT_LINE.split(text[formal.end : formal.end + 80], maxsplit=1)[0]
    return "" if labels.offers_several_labels(f"{formal.letter}{behind}", string.ascii_uppercase) else formal.letter


def _read_letter_of_last_line(text: str, letters: str, choices: tuple[str, ...]) -> str | None:
    """Return the only letter that the last line names, or the only choice whose text its last sentence contains."""
    line = text.rstrip().rpartition("\n")[2]
    if len(text) > SHORT_RESPONSE_CHARACTERS and not _FINISHED.search(line):  # it is cut off
        return None
    groups = labels.find_letter_groups(line, letters)
    open_letters = {letter for group in groups if group.stance != "denied" for letter in group.letters}
    if len(open_letters) > 1:
        return ""
    return _letter_of_mentioned_choice(_SENTENCE_END.split(line)[-1], choices) or "".join(open_letters) or None


# ── lines and lists ──────────────────────────────────────────────────────────


def _find_letter_lines(text: str, letters: str, choices: tuple[str, ...]) -> list[StatedLetter]:
    """Return the lines that consist of a letter, with or without its choice: the first, the last, or the only one.

    If the text consists of such lines only, two different letters are a hedge.
    """
    spans = [match.span() for match in re.finditer(r"[^\n]+", text) if match[0].strip()]
    lines = [_read_letter_line(text, start, end, letters, choices) for start, end in spans]
    alone = [reading for reading in lines[:1] + lines[1:][-1:] if reading is not None]
    if len(spans) > 1 and len(alone) == 2 and all(_LABEL_LINE.fullmatch(text[start:end]) for start, end in spans):
        return [
            StatedLetter(alone[0].start, alone[1].end, alone[0].letter if alone[0].letter == alone[1].letter else "")
        ]
    named = [reading for reading in lines if reading is not None]
    return alone if alone or len({reading.letter for reading in named}) != 1 else named[-1:]


def _read_letter_line(text: str, start: int, end: int, letters: str, choices: tuple[str, ...]) -> StatedLetter | None:
    match = _LABEL_LINE.fullmatch(_FORMULA.sub(r"(\1)", _unwrap_latex(text[start:end])))
    if match is None or (letter := match["letter"].upper()) not in letters:
        return None
    said = match["text"]
    above = text[max(0, start - SHORT_RESPONSE_CHARACTERS) : start].strip("\n ")
    if above and match["letter"] == text[start:end].strip().lower() and not above.endswith((".", ":", "?")):
        return None  # a variable of a calculation
    if said and (match["letter"].islower() or labels.find_letter_groups(said, letters, ignore_context=True)):
        return None
    is_own = said and (
        said.strip(" .*_") == labels.CHOICE_PLACEHOLDER or _letter_of_equal_choice(said, choices) == letter
    )
    if said and not is_own and (choices or not match["stop"]):
        return None
    return StatedLetter(start, end, letter)


def _blank_out_lists(text: str, letters: str) -> tuple[str, list[StatedLetter]]:
    """Return the text with restated lists of choices blanked out, and the choice that each list marks, if any."""
    runs: list[list[re.Match[str]]] = []
    for item in _ITEM.finditer(text):
        last = runs[-1][-1] if runs else None
        if last and ord(item["letter"]) == ord(last["letter"]) + 1 and not text[last.end() : item.start()].strip():
            runs[-1].append(item)
        else:
            runs.append([item])
    marked: list[StatedLetter] = []
    blanked: list[tuple[int, int]] = []
    for run in [run for run in runs if len(run) > 1][-20:]:
        signed = [item for item in run if _MARK.search(item["text"])]
        chosen = signed if len(signed) == 1 else [item for item in run if _BOLD.match(item[0])]
        if len(chosen) == 1 and chosen[0]["letter"] in letters:
            marked.append(StatedLetter(chosen[0].start(), chosen[0].end(), chosen[0]["letter"]))
        start, end = run[0].start(), run[-1].end()
        blanked.append((start, end))
    for start, end in blanked:
        text = text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]
    return text, marked


# ── the choices' own texts ───────────────────────────────────────────────────


def _shorten_quotations(text: str, choices: tuple[str, ...]) -> str:
    """Return the text with `(B) …` for each label beside its own choice's text.

    The text of a choice ("Not wrong", "both A and C") is not a statement about the choice.
    """
    texts = [[word.casefold() for word in _WORD.findall(_unwrap_latex(choice))] for choice in choices]
    pieces: list[str] = []
    position = 0
    for match in sorted((*_QUOTING.finditer(text), *_BEHIND.finditer(text)), key=lambda match: match.start("letter")):
        letter = match["letter"].upper()
        index = string.ascii_uppercase.index(letter)
        if match.start() < position or index >= len(texts) or not texts[index]:
            continue
        if len(choices[index].strip()) == 1 and not re.search(r"[).:]", match[0]):  # "A, B" names two letters
            continue
        span = _find_quotation(text, match, texts[index])
        if span and span[0] >= position:
            pieces.append(f"{text[position : span[0]]}({letter}) {labels.CHOICE_PLACEHOLDER}")
            position = span[1]
    return "".join((*pieces, text[position:]))


def _find_quotation(text: str, label: re.Match[str], words: list[str]) -> tuple[int, int] | None:
    """Return the span of a label and its choice's text; None if the words differ or are too few."""
    room = 3 * sum(map(len, words)) + 8 * len(words) + 40
    if label.re is _BEHIND:
        before = list(_WORD.finditer(text, max(0, label.start() - room), label.start()))[-len(words) :]
        same = [word[0].casefold() for word in before] == words
        return (before[0].start(), label.end()) if same else None
    quoted: list[re.Match[str]] = []
    for word, wanted in zip(_WORD.finditer(text, label.end(), label.end() + room), words, strict=False):
        if word[0].casefold() != wanted:
            break
        quoted.append(word)
    return (label.start(), quoted[-1].end()) if len(quoted) >= min(len(words), _MIN_QUOTED_WORDS) else None


def _unwrap_latex(text: str) -> str:
    return _WRAPPED.sub(r"\1", _WRAPPED.sub(r"\1", text)) if "\\" in text else text


def normalize_text(text: str) -> str:
    """Normalise case, spacing, punctuation and the encoding of accents; minus signs are kept."""
    return _NOISE.sub(" ", unicodedata.normalize("NFKC", _unwrap_latex(text)).replace("−", "-").casefold()).strip()


def _normalize_spacing(text: str) -> str:
    """Normalise only case, spacing and a final stop, for choices that differ by punctuation."""
    text = unicodedata.normalize("NFKC", _unwrap_latex(text)).replace("−", "-").casefold()
    return " ".join(text.split()).strip(' .*_$`"')


def _letter_of_equal_choice(place: str, choices: tuple[str, ...]) -> str:
    """Return the letter of the only choice whose text is `place`; a choice that is itself a letter never matches."""
    is_letter = re.fullmatch(r"\W*[A-Za-z]\W*", place) is not None
    for reading in (_normalize_spacing,) if is_letter else (_normalize_spacing, normalize_text):
        wanted = reading(place)
        same = [
            index
            for index, choice in enumerate(choices)
            if reading(choice) == wanted and not re.fullmatch(r"\s*[A-Za-z]\W*", choice)
        ]
        if wanted and len(same) == 1:
            return string.ascii_uppercase[same[0]]
    return ""


def _letter_of_labelled_choice(line: str, letters: str, choices: tuple[str, ...]) -> str:
    """Return the letter in "A Paris", if the whole text of a choice follows it; "" otherwise."""
    match = re.match(r"[\W_]*([A-Z])\s+(\S.*)", line)
    return match[1] if match and match[1] in letters and _letter_of_equal_choice(match[2], choices) else ""


def _is_article_of_choice(line: str, position: int, choices: tuple[str, ...]) -> bool:
    """Return whether the small letter before `position` is an article, as in "a cat, …"."""
    return line[position : position + 1] == " " and bool(_letter_of_mentioned_choice(line, choices))


def _letter_of_mentioned_choice(place: str, choices: tuple[str, ...]) -> str | None:
    """Return the letter of the only choice that `place` contains and does not deny.

    A choice inside a longer one is ignored.
    """
    if letter := _letter_of_equal_choice(place, choices):
        return letter
    line = f" {normalize_text(place[:4000])} "
    mentions = [(index, normalize_text(choice)) for index, choice in enumerate(choices) if normalize_text(choice)]
    mentions = [(index, choice) for index, choice in mentions if len(choice) > 2 and f" {choice} " in line]
    longest = [(i, c) for i, c in mentions if not any(c != other and c in other for _, other in mentions)]
    spans = [(i, line.index(f" {c} ") + 1, len(c)) for i, c in longest]
    affirmed = [i for i, at, n in spans if not (_NOT_BEFORE.search(line[:at]) or _NOT_AFTER.match(line, at + n))]
    return string.ascii_uppercase[affirmed[0]] if len(affirmed) == 1 else None


def _find_gold_error(problem: Problem) -> str:
    letters = list_choice_letters(problem)
    if not problem.choices:
        return "there are no choices"
    return "" if problem.answer in [*letters] else f"no letter of {letters}"


GRADER = Grader(
    "choice",
    'Finish with "Answer: X", X being the letter.',
    find_answer,
    grade_answer,
    find_gold_error=_find_gold_error,
)
