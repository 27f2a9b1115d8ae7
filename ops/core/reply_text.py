"""The answer in the text of a language model: without its reasoning, and without control tokens of its chat template.

What belongs here: the notations in which models write their reasoning, the tokens that servers leave in a text, and how
both are removed. What does not: where an answer stands in the text (`ops.grading`), and what else a provider sends
(`ops.workers.replies`).

A text in a program or in quotation marks that merely mentions such a mark is left as it is.
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
    """How a model marks its reasoning: the text between `opening` and `closing`.

    `prefilled`: the chat template writes the opening, so a text begins inside the reasoning, and one without a closing
    mark is nothing else.
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
"""The notations that are read without a setting; the channels of the harmony format (gpt-oss) are read as well."""


class ReplyText(NamedTuple):
    """A model's text, divided: `answer` is everything outside of the reasoning.

    `has_reasoning` says whether the text held any reasoning.
    """

    answer: str
    has_reasoning: bool


def parse_reply_text(
    text: str, notations: Sequence[Notation] = KNOWN_NOTATIONS, control_tokens: Sequence[str] = ()
) -> ReplyText:
    """Return the answer in a model's text. A text without any mark or token is returned unchanged.

    Reasoning that never closes reaches to the end of the text. A closing mark without an opening one ends a reasoning
    that the chat template opened. `control_tokens` are removed in addition to the known ones. What follows a token that
    ends a turn belongs to another turn, and is removed with it. Lone surrogates, which UTF-8 cannot write, become
    U+FFFD, or are removed at the end.
    """
    text = replace_surrogates(text)
    marks = _compile_marks(tuple(notations), tuple(control_tokens))
    reasoned = False
    for _ in range(_MOST_PASSES):  # what remains can look like another notation
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
    """Return the answer in a model's text by the known notations and tokens (`parse_reply_text`)."""
    return parse_reply_text(text).answer


def replace_surrogates(text: str) -> str:
    """Return `text` in a form that UTF-8 can encode: each lone surrogate becomes U+FFFD."""
    return _LONE_SURROGATE.sub("\ufffd", text)


_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")
_BAR = "[|｜]"
_TURN = (
    rf"<{_BAR}(?:im_end|im_start|im_sep|eot_id|eom_id|endoftext|end_of_text|end_of_turn|eot|eos|end|return|call|start|"
    rf"user|system|assistant|observation|start_header_id|end_of_turn_token|start_of_turn_token|end_response|"
    rf"end_of_role|start_of_role|begin_of_text|(?:begin|end)[▁_]of[▁_]sentence){_BAR}>"
    r"|<(?:start|end)_of_turn>|<turn\|>|<\|turn>|<(?:eos|bos|eod)>|\[/?INST\]"
)
"""Tokens with which a turn ends or the next one begins."""
_TOKEN = (
    rf"{_TURN}|<{_BAR}[\w▁/.:-]{{2,40}}{_BAR}>|<(?:pad|unk)>|<unused\d+>|<\|[a-z_]{{2,20}}>|<[a-z_]{{2,20}}\|>"
    r"|\ufffd|\ufeff|\u200b|\u2060|\x00"
)
"""What is never the beginning or the end of an answer."""
_FENCE = r"^[ \t>]{0,12}(?P<fence>`{3,}|~{3,})[^`\n<]*$"
_QUOTED = (
    r"(?<!`)(?P<tick>`{1,2})(?!`)[^\n`](?:[^\n]{0,400}?[^\n`])?(?P=tick)(?!`)"
    r"|(?:(?<![^\s(\[{,=+:!%])|(?<=[\s(\[{,=+:][rbfu]))"
    r"(?P<quote>[\"'])(?:\\.|(?!(?P=quote))[^\\\n]){0,400}(?P=quote)(?![^\s)\]},;.:+!?%-])"
    r"|“[^“”\n]{0,400}”|‘[^‘’\n]{0,400}’|«[^«»\n]{0,400}»"
)
"""Code within a line, a string of a program, or words in quotation marks."""
_CHANNEL = re.compile(r"<\|channel\|>\s*([a-z]+)(?:[^<\n]|<\|constrain\|>){0,200}<\|message\|>")
_CHANNEL_START = re.compile(r"(?:<\|start\|>\s*assistant[^<\n]{0,80})?<\|channel\|>")
_MESSAGE_END = re.compile(r"<\|(?:end|return|call|start|channel)\|>")
_BARE_CHANNEL = re.compile(
    r"\A\s*(?:assistant)?(?:analysis|commentary)(?:(?=[A-Z][\w'’]*,?[ \t]+\w)|(?=(?s:.*)assistantfinal))"
    r"|\A\s*assistantfinal(?![\w(.])|\A\s*assistantfinal(?=[A-Z0-9])"
)
"""A harmony text from which a server removed the tokens: "analysisWe add.assistantfinal5"."""
_NAMED_AFTER = re.compile(r"[ \t](?:tags?|tokens?|blocks?|elements?|sections?|markers?|marks?|delimiters?)(?![\w'])")
_SPOKEN_OF_BEFORE = re.compile(r"(?<=[\w,;:])[ \t]+\(?\Z")
_SPOKEN_OF_AFTER = re.compile(
    r"[,;.:!?)](?![^\s)\"'<])|[ \t](?:and|or|to|is|are|in|at|for|with|begins?|opens?|closes?|ends?)\s"
)
_LONGEST_TOKEN = 64
_MOST_PASSES = 8
_WORDS = {re.sub(r"\W", "", known.opening).lower() for known in KNOWN_NOTATIONS}


class _MarkPatterns(NamedTuple):
    """The patterns of a set of notations and tokens."""

    notations: tuple[Notation, ...]
    suspects: re.Pattern[str]
    """Finds anything that may have to be removed."""
    either: str
    """An opening mark (group `o0`, `o1` …) or a closing one (`c0`, `c1` …)."""
    turn: str
    """What ends a turn."""
    leading: re.Pattern[str]
    trailing: re.Pattern[str]
    begins_inside: int | None
    """The notation in whose reasoning every text begins."""


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
    """Return the pattern of a mark; a tag may have spaces before its end."""
    return rf"{re.escape(mark[:-1])}[ \t]*>" if re.fullmatch(r"</?[\w:]+>", mark) else re.escape(mark)


@lru_cache(maxsize=256)
def _guard_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?P<block>{_FENCE})|(?P<quoted>{_QUOTED})|(?P<found>{pattern})", re.IGNORECASE | re.MULTILINE)


class _MarkFinder:
    """Finds marks in one text that a person would not read as mentions: none in quotation marks, in code within a line,
    or in a sentence about it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._never_closed: set[str] = set()

    def find(self, pattern: str, start: int, end: int) -> Iterator[re.Match[str]]:
        """Yield the matches of `pattern` between `start` and `end`, also those in blocks of code."""
        guarded, position = _guard_pattern(pattern), start
        while (match := guarded.search(self.text, position, end)) is not None:
            position = match.end()
            if match["found"] is not None and not self.is_mention(*match.span()):
                yield match

    def find_outside_code(self, pattern: str, start: int = 0) -> Iterator[re.Match[str]]:
        """Yield the matches of `pattern` from `start` on that no closed block of code holds."""
        end = start
        guarded = _guard_pattern(pattern)
        while (match := guarded.search(self.text, end)) is not None:
            end = match.end()
            if match["block"] is not None:
                end = self.end_of_block(match) or end
            elif match["found"] is not None and not self.is_mention(*match.span()):
                yield match

    def first_mark(self, either: str, start: int) -> re.Match[str] | None:
        """Return the first mark from `start` on, which is in an answer.

        A closed block of code that holds a closing mark without its opening one begins in a reasoning and ends in the
        answer.
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
        """Return where the block of code ends that a fence opens; None if it is never closed."""
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
        """Return whether a sentence is about the mark there: "the <think> tag", "between <think> and </think>"."""
        if _NAMED_AFTER.match(self.text, end):
            return True
        before = self.text[max(0, start - 40) : start]
        return bool(_SPOKEN_OF_BEFORE.search(before) and _SPOKEN_OF_AFTER.match(self.text, end))


def _parse_mark_group(mark: re.Match[str]) -> tuple[str, int]:
    """Return "o" or "c", and the notation's number."""
    name = next(name for name, found in mark.groupdict().items() if found is not None and name[1:].isdigit())
    return name[0], int(name[1:])


def _remove_reasoning(text: str, marks: _MarkPatterns) -> tuple[str, bool]:
    """Return the text outside of the reasoning, and whether there was any."""
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
                break  # one closing mark too many, behind the answer
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
    """Return where a reasoning ends whose opening mark ends at `start`: behind its own closing mark, or behind another
    one whose opening mark is not in between; None if it never does."""
    other: int | None = None
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
        elif at not in opened and other is None:
            other = mark.end()
    return other


def _find_end_of_empty_pair(text: str, marks: _MarkPatterns, opening: re.Match[str]) -> int | None:
    """Return where a pair of marks on one line ends that has nothing in it, as in "in <think>…</think> tags"; None for
    another opening mark."""
    closing = _pattern(marks.notations[_parse_mark_group(opening)[1]].closing)
    pair = re.compile(rf"[ \t]*(?:(?:…|\.\.\.)[ \t]*)?{closing}", re.IGNORECASE).match(text, opening.end())
    return None if pair is None else pair.end()


def _extract_final_channel(text: str) -> tuple[str, bool]:
    """Return the messages of the channel "final" of a text in the harmony format, and whether it has channels."""
    if _BARE_CHANNEL.match(text):
        return (text.rpartition("assistantfinal")[2] if "assistantfinal" in text else ""), True
    if "<|channel|>" not in text:
        return text, False
    reader = _MarkFinder(text)
    first = next(reader.find_outside_code(_CHANNEL_START.pattern), None)
    if first is None:
        return text, False
    before = text[: first.start()]
    # A text whose first header the chat template wrote begins in the reasoning.
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
    """Return the text without control tokens at its ends, and without what follows the end of its turn."""
    if (leading := marks.leading.match(text)) is not None:
        text = text[leading.end() :]
    for turn in _MarkFinder(text).find_outside_code(marks.turn):
        if text[: turn.start()].strip():
            text = text[: turn.start()].rstrip()
            break
    end = _find_content_end(text, marks)
    return text if end == len(text) else text[:end].rstrip()


def _find_content_end(text: str, marks: _MarkPatterns) -> int:
    """Return where the control tokens begin with which the text ends; its length if there are none."""
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
    """Return whether all of the text is a Python program, which can hold marks in strings and comments alone."""
    if "\n" not in text.strip() and "(" not in text:
        return False  # a program of one line that prints a mark calls something
    try:
        tree = parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    names = {node.id.lower() for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return names.isdisjoint(_WORDS) and not _BARE_CHANNEL.match(text)
