"""Extract the answer from the text of a language model: remove its reasoning and the control tokens of its chat
template.

This module knows the notations in which models mark their reasoning and the tokens that servers leave in a text. Where
an answer stands in the text is the task of `ops.grading`; everything else that a provider sends is read by
`ops.workers.replies`. A text that only mentions a mark, in a program or in quotation marks, is left unchanged.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ops.core.cpython import parse


@dataclass(frozen=True)
class Notation:
    """How a model marks its reasoning: as the text between the marks `opening` and `closing`.

    With `prefilled`, the chat template writes the opening mark, so that a reply begins inside the reasoning, and a
    reply without a closing mark consists of reasoning only.
    """

    opening: str
    closing: str
    prefilled: bool = False


KNOWN_NOTATIONS = (
    Notation("<think>", "</think>"),  # DeepSeek, Qwen, GLM, Kimi, MiniMax, Nemotron, Phi and most others
    Notation("<thinking>", "</thinking>"),
    Notation("<thought>", "</thought>"),  # EXAONE, Gemini's OpenAI-compatible endpoint
    Notation("<reasoning>", "</reasoning>"),
    Notation("<scratchpad>", "</scratchpad>"),
    Notation("<seed:think>", "</seed:think>"),  # Seed-OSS
    Notation("<longcat_think>", "</longcat_think>"),
    Notation("[THINK]", "[/THINK]"),  # Magistral
    Notation("<|channel>", "<channel|>"),  # Gemma 4
    Notation("<unused94>", "<unused95>"),  # MedGemma
    Notation("<|START_THINKING|>", "<|END_THINKING|>"),  # Command
    Notation("<|begin_of_thought|>", "<|end_of_thought|>"),
    Notation("<|inner_prefix|>", "<|inner_suffix|>"),  # Apertus
    Notation("◁think▷", "◁/think▷"),  # Kimi-VL
)
"""The notations that are recognised without a setting. The channels of the harmony format (gpt-oss) are recognised as
well."""


class ReplyText(NamedTuple):
    """A model's text without its reasoning (`answer`), and whether the text contained reasoning (`has_reasoning`)."""

    answer: str
    has_reasoning: bool


def parse_reply_text(
    text: str, notations: Sequence[Notation] = KNOWN_NOTATIONS, control_tokens: Sequence[str] = ()
) -> ReplyText:
    """Return the answer in a model's text. A text without any mark or control token is returned unchanged.

    Reasoning without a closing mark extends to the end of the text. A closing mark without an opening one ends a
    reasoning whose opening mark the chat template wrote. `control_tokens` are removed in addition to the known ones.
    The text after a token that ends a turn belongs to another turn and is removed. Lone surrogates, which UTF-8 cannot
    encode, become U+FFFD, or are removed at the end of the text.
    """
    text = replace_surrogates(text)
    marks = _compile_marks(tuple(notations), tuple(control_tokens))
    reasoned = False
    for _ in range(_MOST_PASSES):  # after a removal, the rest can contain another notation
        suspected = marks.begins_inside is not None or marks.suspects.search(text) or _BARE_CHANNEL.match(text)
        if not suspected:
            break
        if _is_program(content := text[: _find_content_end(text, marks)]):
            text = text if content == text else content.rstrip()
            break
        before = text
        text, channelled = _extract_final_channel(text)
        text, marked = _remove_reasoning(text, marks)
        text = _remove_tokens(text, marks)
        if channelled or marked:
            reasoned, text = True, text.strip()
        marks = marks._replace(begins_inside=None)
        if text == before:
            break
    return ReplyText(text, reasoned)


def extract_answer_text(text: str) -> str:
    """Return the answer in a model's text, using the known notations and control tokens only (`parse_reply_text`)."""
    return parse_reply_text(text).answer


def replace_surrogates(text: str) -> str:
    """Return the text with each lone surrogate replaced by U+FFFD, so that UTF-8 can encode it."""
    return _LONE_SURROGATE.sub("\ufffd", text)


_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")
_BAR = "[|｜]"
_TURN = (
    rf"<{_BAR}(?:im_end|im_start|im_sep|eot_id|eom_id|endoftext|end_of_text|end_of_turn|eot|eos|end|return|call|start|"
    rf"user|system|assistant|observation|start_header_id|end_of_turn_token|start_of_turn_token|end_response|"
    rf"end_of_role|start_of_role|begin_of_text|(?:begin|end)[▁_]of[▁_]sentence){_BAR}>"
    r"|<(?:start|end)_of_turn>|<turn\|>|<\|turn>|<(?:eos|bos|eod)>|\[/?INST\]"
)
"""Pattern of the tokens that end a turn or begin the next one."""
_TOKEN = (
    rf"{_TURN}|<{_BAR}[\w▁/.:-]{{2,40}}{_BAR}>|<(?:pad|unk)>|<unused\d+>|<\|[a-z_]{{2,20}}>|<[a-z_]{{2,20}}\|>"
    r"|\ufffd|\ufeff|\u200b|\u2060|\x00"
)
"""Pattern of the tokens that are removed at the beginning and the end of an answer."""
_FENCE = r"^[ \t>]{0,12}(?P<fence>`{3,}|~{3,})[^`\n<]*$"
_QUOTED = (
    r"(?<!`)(?P<tick>`{1,2})(?!`)[^\n`](?:[^\n]{0,400}?[^\n`])?(?P=tick)(?!`)"
    r"|(?:(?<![^\s(\[{,=+:!%])|(?<=[\s(\[{,=+:][rbfu]))"
    r"(?P<quote>[\"'])(?:\\.|(?!(?P=quote))[^\\\n]){0,400}(?P=quote)(?![^\s)\]},;.:+!?%-])"
    r"|“[^“”\n]{0,400}”|‘[^‘’\n]{0,400}’|«[^«»\n]{0,400}»"
)
"""Pattern of code within a line, of a string in a program, and of words in quotation marks."""
_CHANNEL = re.compile(r"<\|channel\|>\s*([a-z]+)(?:[^<\n]|<\|constrain\|>){0,200}<\|message\|>")
_CHANNEL_START = re.compile(r"(?:<\|start\|>\s*assistant[^<\n]{0,80})?<\|channel\|>")
_MESSAGE_END = re.compile(r"<\|(?:end|return|call|start|channel)\|>")
_BARE_CHANNEL = re.compile(
    r"\A\s*(?:assistant)?(?:analysis|commentary)(?:(?=[A-Z][\w'’]*,?[ \t]+\w)|(?=(?s:.*)assistantfinal))"
    r"|\A\s*assistantfinal(?![\w(.])|\A\s*assistantfinal(?=[A-Z0-9])"
)
"""Pattern of a text in the harmony format whose tokens a server has removed: "analysisWe add.assistantfinal5"."""
_NAMED_AFTER = re.compile(r"[ \t](?:tags?|tokens?|blocks?|elements?|sections?|markers?|marks?|delimiters?)(?![\w'])")
_SPOKEN_OF_BEFORE = re.compile(r"(?<=[\w,;:])[ \t]+\(?\Z")
_SPOKEN_OF_AFTER = re.compile(
    r"[,;.:!?)](?![^\s)\"'<])|[ \t](?:and|or|to|is|are|in|at|for|with|begins?|opens?|closes?|ends?)\s"
)
_LONGEST_TOKEN = 64
_MOST_PASSES = 8
_WORDS = {re.sub(r"\W", "", known.opening).lower() for known in KNOWN_NOTATIONS}


class _MarkPatterns(NamedTuple):
    """The compiled patterns for a set of notations and control tokens."""

    notations: tuple[Notation, ...]
    suspects: re.Pattern[str]
    """Finds everything that may have to be removed."""
    either: str
    """Matches an opening mark (group `o0`, `o1` …) or a closing mark (group `c0`, `c1` …) of a notation."""
    turn: str
    """Matches the tokens that end a turn."""
    leading: re.Pattern[str]
    trailing: re.Pattern[str]
    begins_inside: int | None
    """The index of the notation in whose reasoning every text begins (`Notation.prefilled`); None if there is none."""


@lru_cache(maxsize=64)
def _compile_marks(notations: tuple[Notation, ...], control_tokens: tuple[str, ...]) -> _MarkPatterns:
    sides = [f"(?P<o{at}>{_pattern(each.opening)})" for at, each in enumerate(notations)]
    sides += [f"(?P<c{at}>{_pattern(each.closing)})" for at, each in enumerate(notations)]
    either = "|".join(sides) or "(?!)"
    more = "".join(f"|{_pattern(token)}" for token in control_tokens)
    token = _TOKEN + more
    return _MarkPatterns(
        notations,
        # Each alternative begins with one character that has no case: then `re` skips to these characters.
        re.compile(
            "|".join(
                [*(_pattern(mark) for each in notations for mark in (each.opening, each.closing)), token, "</?s>"]
            ),
            re.IGNORECASE,
        ),
        either,
        _TURN + more,
        re.compile(rf"\A\s*(?:(?:{token}|<s>)(?:(?:assistant|model|chatbot)(?=\s|{_TOKEN}))?\s*)+", re.IGNORECASE),
        re.compile(rf"(?:{token})\Z", re.IGNORECASE),
        next((at for at, each in enumerate(notations) if each.prefilled), None),
    )


def _pattern(mark: str) -> str:
    """Return the regular expression of a mark. A tag may have blanks before its closing bracket."""
    return rf"{re.escape(mark[:-1])}[ \t]*>" if re.fullmatch(r"</?[\w:]+>", mark) else re.escape(mark)


@lru_cache(maxsize=256)
def _guard_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?P<block>{_FENCE})|(?P<quoted>{_QUOTED})|(?P<found>{pattern})", re.IGNORECASE | re.MULTILINE)


class _MarkFinder:
    """Finds marks in a text, except for those that the text only mentions.

    A mark counts as mentioned in quotation marks, in code within a line, and in a sentence about the mark.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._never_closed: set[str] = set()

    def find(self, pattern: str, start: int, end: int) -> Iterator[re.Match[str]]:
        """Yield the matches of `pattern` between `start` and `end`, including those in blocks of code."""
        guarded, position = _guard_pattern(pattern), start
        while (match := guarded.search(self.text, position, end)) is not None:
            position = match.end()
            if match["found"] is not None and not self.is_mention(*match.span()):
                yield match

    def find_outside_code(self, pattern: str, start: int = 0) -> Iterator[re.Match[str]]:
        """Yield the matches of `pattern` from `start` on, except for those in closed blocks of code."""
        end = start
        guarded = _guard_pattern(pattern)
        while (match := guarded.search(self.text, end)) is not None:
            end = match.end()
            if match["block"] is not None:
                end = self.end_of_block(match) or end
            elif match["found"] is not None and not self.is_mention(*match.span()):
                yield match

    def first_mark(self, either: str, start: int) -> re.Match[str] | None:
        """Return the first mark of a reasoning from `start` on, where `start` lies in an answer; None if there is none.

        Marks in a closed block of code are skipped. The exception is a block with a closing mark whose opening mark is
        outside of it: such a block begins in the reasoning and ends in the answer.
        """
        guarded, position = _guard_pattern(either), start
        while (match := guarded.search(self.text, position)) is not None:
            position = match.end()
            if match["block"] is not None and (end := self.end_of_block(match)) is not None:
                inside = next(self.find(either, position, end), None)
                if inside is not None and _parse_mark_group(inside)[0] == "c":
                    return inside
                position = end
            elif match["found"] is not None and not self.is_mention(*match.span()):
                return match
        return None

    def end_of_block(self, opening: re.Match[str]) -> int | None:
        """Return where the block of code ends that this fence opens; None if it is never closed."""
        fence = opening["fence"]
        if fence in self._never_closed:
            return None
        closing = re.compile(rf"^[ \t>]{{0,12}}{re.escape(fence)}{fence[0]}*[ \t]*$", re.MULTILINE)
        found = closing.search(self.text, opening.end())
        if found is None:
            self._never_closed.add(fence)
            return None
        return found.end()

    def is_mention(self, start: int, end: int) -> bool:
        """Return whether a sentence talks about the mark at this place: "the <think> tag", "between <think> and
        </think>"."""
        if _NAMED_AFTER.match(self.text, end):
            return True
        before = self.text[max(0, start - 40) : start]
        return bool(_SPOKEN_OF_BEFORE.search(before) and _SPOKEN_OF_AFTER.match(self.text, end))


def _parse_mark_group(mark: re.Match[str]) -> tuple[str, int]:
    """Return "o" for an opening or "c" for a closing mark, and the index of its notation."""
    name = next(name for name, found in mark.groupdict().items() if found is not None and name[1:].isdigit())
    return name[0], int(name[1:])


def _remove_reasoning(text: str, marks: _MarkPatterns) -> tuple[str, bool]:
    """Return the text without its reasoning, and whether it contained any."""
    reader = _MarkFinder(text)
    pieces: list[str] = []
    start, closed = 0, False
    if (at := marks.begins_inside) is not None and not re.match(rf"\s*{_pattern(marks.notations[at].opening)}", text):
        if (end := _find_end_of_reasoning(reader, marks, at, 0)) is None:
            return "", True
        start, closed = end, True
    position, content_end = start, _find_content_end(text, marks)
    while (mark := reader.first_mark(marks.either, position)) is not None:
        side, at = _parse_mark_group(mark)
        if side == "c":
            if closed and not text[mark.end() : content_end].strip():
                break  # this is a superfluous closing mark after the answer
            pieces.clear()
            start = position = mark.end()
            if not closed and _is_program(rest := text[start:content_end].strip()):
                return rest, True
            closed = True
            continue
        if (end := _find_end_of_empty_pair(text, marks, mark)) is not None and reader.is_mention(mark.start(), end):
            position = end
            continue
        end = _find_end_of_reasoning(reader, marks, at, mark.end())
        pieces.append(text[start : mark.start()])
        if end is None:
            return _join_pieces(pieces), True
        start = position = end
        if not closed and _is_program(rest := text[start:content_end].strip()):
            return _join_pieces([*pieces, rest]), True
        closed = True
    if start == 0:
        return text, False
    return _join_pieces([*pieces, text[start : mark.start()] if mark is not None else text[start:]]), True


def _join_pieces(pieces: Sequence[str]) -> str:
    return "\n".join(piece.strip() for piece in pieces if piece.strip())


def _find_end_of_reasoning(reader: _MarkFinder, marks: _MarkPatterns, notation: int, start: int) -> int | None:
    """Return where a reasoning ends whose opening mark ends at `start`; None if it never ends.

    It ends after its own closing mark, or after the closing mark of another notation that was not opened in between.
    """
    end_by_other_mark: int | None = None
    opened: set[int] = set()
    pair: int | None = None
    for mark in reader.find(marks.either, start, len(reader.text)):
        side, at = _parse_mark_group(mark)
        if side == "o":
            opened.add(at)
            pair = _find_end_of_empty_pair(reader.text, marks, mark)
        elif mark.end() == pair:
            continue
        elif at == notation:
            return mark.end()
        elif at not in opened and end_by_other_mark is None:
            end_by_other_mark = mark.end()
    return end_by_other_mark


def _find_end_of_empty_pair(text: str, marks: _MarkPatterns, opening: re.Match[str]) -> int | None:
    """Return where an opening mark and its closing mark end that stand on one line with nothing in between; None
    otherwise.

    Such a pair is a mention, as in "in <think>…</think> tags".
    """
    closing = _pattern(marks.notations[_parse_mark_group(opening)[1]].closing)
    pair = re.compile(rf"[ \t]*(?:(?:…|\.\.\.)[ \t]*)?{closing}", re.IGNORECASE).match(text, opening.end())
    return None if pair is None else pair.end()


def _extract_final_channel(text: str) -> tuple[str, bool]:
    """Return the messages of the channel "final" of a text in the harmony format, and whether the text has channels."""
    if _BARE_CHANNEL.match(text):
        return (text.rpartition("assistantfinal")[2] if "assistantfinal" in text else ""), True
    if "<|channel|>" not in text:
        return text, False
    reader = _MarkFinder(text)
    first = next(reader.find_outside_code(_CHANNEL_START.pattern), None)
    if first is None:
        return text, False
    before = text[: first.start()]
    # If the chat template wrote the first header, the text begins in the reasoning.
    parts = [] if _MESSAGE_END.search(before) else [before]
    position = first.start()
    while (header := _CHANNEL.search(text, position)) is not None:
        ends = reader.find_outside_code(_MESSAGE_END.pattern, header.end())
        end = next((match.start() for match in ends), len(text))
        if header[1].lower() == "final":
            parts.append(text[header.end() : end])
        position = max(end, header.end())
    return "\n".join(part for part in parts if part.strip()), True


def _remove_tokens(text: str, marks: _MarkPatterns) -> str:
    """Return the text without control tokens at its beginning and end, and without what follows the end of its turn."""
    if (leading := marks.leading.match(text)) is not None:
        text = text[leading.end() :]
    for turn in _MarkFinder(text).find_outside_code(marks.turn):
        if text[: turn.start()].strip():
            text = text[: turn.start()].rstrip()
            break
    end = _find_content_end(text, marks)
    return text if end == len(text) else text[:end].rstrip()


def _find_content_end(text: str, marks: _MarkPatterns) -> int:
    """Return where the control tokens at the end of the text begin; the length of the text if there are none."""
    end = len(text)
    strikes = text.count("</s>") - text.count("<s>")  # HTML strikes words out by <s>…</s>
    while True:
        bare = end
        while bare and text[bare - 1].isspace():
            bare -= 1
        if (token := marks.trailing.search(text, max(0, bare - _LONGEST_TOKEN), bare)) is not None:
            end = token.start()
        elif strikes > 0 and text.endswith("</s>", 0, bare):
            end, strikes = bare - len("</s>"), strikes - 1
        else:
            return end


def _is_program(text: str) -> bool:
    """Return whether the whole text is a Python program, which contains marks only in strings and comments."""
    if "\n" not in text.strip() and "(" not in text:
        return False  # a program of one line that prints a mark calls something
    try:
        tree = parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    names = {node.id.lower() for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return names.isdisjoint(_WORDS) and not _BARE_CHANNEL.match(text)
