"""Find the program in a response: the code block that is the answer.

The last Python block is the answer, unless it only uses, tests or quotes what an earlier block defines.
"""

from __future__ import annotations

import ast
import html
import json
import re
import threading
import warnings
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TypeGuard

from ops.core.cpython import parse
from ops.core.problem import CodeTest

_FENCE = re.compile(
    r"(?P<indent>[ \t]{0,16}(?:>[ \t]{0,8})*)(?:<[a-z_]{1,20}>)?(?P<marks>`{3,}|~{3,})(?P<info>[^`\n]*)", re.IGNORECASE
)
_FENCE_AT_END = re.compile(r"(?P<code>[^`]*[^`\s])[ \t]*```[ \t]*")
_MARKER = re.compile(r"\s*\{?\.?[A-Za-z](?:[\w+#:./-]*[\w+#])?\}?(?:\s+\S+=\S.*)?\s*")
"""The language name after a fence: `python`, `{.py}`, `python title="a.py"`; not a tag or a sentence."""
_LANGUAGE = re.compile(r"[\s{.]*([\w+#-]+)")
_PYTHON = frozenset({"python", "py", "python3", "python2", "py3", "sage", "ipython", "pycon"})
_TAG = re.compile(
    r"<(code|pre|python)\b[^>\n]{0,80}>|\[(PYTHON)\]|\\begin\{(verbatim|lstlisting|minted)\}(?:\[[^\]\n]{0,80}\]|\{\w{0,20}\})*",
    re.IGNORECASE,
)
_TAG_ENDS = ("</{}>", "[/{}]", "\\end{{{}}}")
_INNER_TAG = re.compile(r"\s*</?(?:code|pre|python)\b[^>\n]{0,80}>\s*?", re.IGNORECASE)
_CODE_LINE = re.compile(
    r"^(?:def |class |import |from \w|print\(|for .+:|while .+:|if .+:|try:|async def |with .+:|@\w|\w+ *=[^=])",
    re.MULTILINE,
)
_DEFINED = re.compile(r"^(?:async[ \t]+def|def|class)[ \t]+(\w+)|^(\w+)[ \t]*=[ \t]*lambda\b", re.MULTILINE)
_QUIET = re.compile(
    r"(?:import|from|def|async|class|@|#|[\w.]+(?:[ \t]*:[^=\n]+)?[ \t]*=[^=]|[\])}]|\"\"\"|''')", re.ASCII
)
_WORD = re.compile(r"(?<![\w.])[^\W\d]\w*")
_JSON = json.JSONDecoder(strict=False)
"""A JSON decoder that accepts unescaped line ends in strings, which language models often write."""
_CALL = re.compile(r"(?<![\w.])([^\W\d]\w*)\s*\(")
MAX_ENDS = 40
"""Maximum number of ends that are tried for an unfenced program."""
MAX_QUOTATIONS = 20
"""Maximum number of quotation marks that are read before a line."""
MAX_BLOCKS = 60
"""Maximum number of blocks, counted from the last, that are compared with each other."""


class Block(NamedTuple):
    """A block of code: `language` in lower case ("" if the block names none) and the dedented text."""

    language: str
    body: str

    @property
    def is_python(self) -> bool:
        return self.language in _PYTHON

    @property
    def defined_names(self) -> frozenset[str]:
        """The functions and classes that the block defines at its top level."""
        return frozenset(name for pair in _DEFINED.findall(self.body) for name in pair if name)

    @property
    def has_statements(self) -> bool:
        """True if the block executes anything at its top level besides definitions and imports."""
        lines = [line for line in self.body.splitlines() if line and not line[0].isspace()]
        return any(not _QUIET.match(line) for line in lines)


def extract_program(response: str, tests: Iterable[CodeTest] = (), names: Iterable[str] = ()) -> str:
    """Return the program that `response` gives as its answer; "" if there is none.

    A block marked as Python is preferred to an unmarked one, and a later block to an earlier one. If `tests` call
    functions or classes by name, or `names` has any, the last block that defines one of them is chosen. A block that
    calls functions of an earlier block is an example of its use; it is appended if the earlier block executes nothing
    by itself, because the program would otherwise do nothing. An unclosed block extends to the end of the response. If
    no block contains Python, strings in JSON count as blocks.
    """
    blocks = _find_blocks(response)
    candidates = [block for block in blocks if block.is_python] or [
        block for block in blocks if not block.language and _CODE_LINE.search(block.body)
    ]
    candidates = candidates or _find_json_programs([block.body for block in blocks] or [response])
    if not candidates:
        return "" if blocks else _find_unfenced_program(response)
    return _choose_program(candidates[-MAX_BLOCKS:], find_tested_names(tests).union(names))


def find_tested_names(tests: Iterable[CodeTest]) -> frozenset[str]:
    """Return the names that the tests use and do not define; none for programs that read stdin."""
    calls = [test.input.partition("(")[0][:200] for test in tests if test.kind == "call"]
    sources = [*calls[:3], *(test.input[:100_000] for test in tests if test.kind == "unittest")]
    words = {word for source in sources for word in _WORD.findall(source)}
    return frozenset(words).difference(*(Block("", source).defined_names for source in sources))


def parse_program(source: str, mode: str = "exec") -> ast.AST:
    """Parse `source`. Raises `SyntaxError`, `ValueError`, `RecursionError` or `MemoryError`."""
    # Warning filters are shared by the process, and graders run in threads.
    with _PARSING, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about the program's text do not concern Podium
        parsed: ast.AST = parse(source, mode)
        return parsed


PARSE_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError)
"""The exceptions that `parse_program` raises for text that is not Python."""
_PARSING = threading.Lock()


# ── choosing ─────────────────────────────────────────────────────────────────


def _choose_program(candidates: list[Block], wanted: frozenset[str]) -> str:
    defining = [block for block in candidates if block.defined_names & wanted]
    if defining:
        return defining[-1].body
    last = len(candidates) - 1
    while last and _is_excerpt(candidates[last], candidates[:last]):
        last -= 1
    uses: list[Block] = []
    while last and _is_usage_example(candidates[last], candidates[:last]):
        uses.append(candidates[last])
        last -= 1
    answer = candidates[last]
    if uses and not wanted and not answer.has_statements:
        return f"{answer.body}\n{uses[-1].body}"
    return answer.body


def _is_usage_example(block: Block, earlier: list[Block]) -> bool:
    """Return whether `block` calls what an earlier block defines and redefines none of it."""
    names = frozenset[str]().union(*(other.defined_names for other in earlier))
    if block.body.lstrip().startswith(">>>"):
        return True
    return not block.defined_names & names and not names.isdisjoint(_CALL.findall(block.body))


def _is_excerpt(block: Block, earlier: list[Block]) -> bool:
    """Return whether `block` is an excerpt of an earlier block, up to indentation."""
    lines = _strip_lines(block.body)
    return any(lines in _strip_lines(other.body) and len(lines) < len(_strip_lines(other.body)) for other in earlier)


def _strip_lines(body: str) -> str:
    return "\n" + "\n".join(line.strip() for line in body.splitlines() if line.strip()) + "\n"


# ── finding ──────────────────────────────────────────────────────────────────


def _find_blocks(response: str) -> list[Block]:
    """Return the blocks between fences; without any fence, the blocks in tags or listings."""
    if "```" in response or "~~~" in response:
        return [block for block in _find_fenced_blocks(response.split("\n")) if block.body.strip()]
    return [block for block in _find_tagged_blocks(response) if _CODE_LINE.search(block.body)]


def _find_tagged_blocks(response: str) -> Iterator[Block]:
    """Return the blocks in `<code>`, `<pre>`, `[PYTHON]` or a LaTeX listing."""
    position = 0
    while match := _TAG.search(response, position):
        kind, name = next((kind, name) for kind, name in enumerate(match.groups()) if name)
        end = response.find(_TAG_ENDS[kind].format(name), match.end())
        if end < 0:
            return
        body = response[match.end() : end]
        if kind == 0:
            body = html.unescape(_INNER_TAG.sub("", body))
        yield Block("python", _dedent(body.strip("\n").split("\n")))
        position = end


def _find_json_programs(texts: list[str]) -> list[Block]:
    """Return the programs in strings of the last text that is JSON or has a JSON object between its sentences."""
    for text in reversed(texts[-MAX_BLOCKS:]):
        for value in _decode_json_values(text.strip()):
            strings = [extract_program(string) if "```" in string else string for string in _collect_strings(value)]
            if programs := [string for string in strings if _CODE_LINE.search(string) and _is_python(string)]:
                return [Block("python", string) for string in programs]
    return []


def _decode_json_values(text: str) -> Iterator[object]:
    """Return the text as JSON; otherwise the values of the first braces that are JSON."""
    starts = [match.start() for match in islice(re.finditer(r"\{", text), MAX_ENDS)]
    for start in [0, *starts] if text[:1] in ("[", '"') else starts:
        try:
            yield _JSON.raw_decode(text, start)[0]
        except (ValueError, RecursionError):
            continue


def _collect_strings(value: object) -> Iterator[str]:
    """Return the strings inside a JSON value in order, without field names. A list of lines is one string."""
    waiting = [value]
    while waiting:
        match waiting.pop():
            case str(text) if text.startswith('{"'):
                waiting.extend(_decode_json_values(text))
            case str(text):
                yield text
            case list(items) if len(items) > 1 and _are_lines(items):
                yield "\n".join(items)
            case list(items):
                waiting.extend(reversed(items))
            case dict(fields):
                waiting.extend(reversed(fields.values()))


def _are_lines(items: list[object]) -> TypeGuard[list[str]]:
    """Return whether a list contains the lines of one text, some of them indented."""
    lines = [item for item in items if isinstance(item, str) and "\n" not in item]
    return len(lines) == len(items) and any(line[:1].isspace() for line in lines)


def _dedent(lines: list[str]) -> str:
    """Remove the first line's indentation from all lines; nothing else changes, since strings may span lines."""
    first = next((line for line in lines if line.strip()), "")
    margin = first[: len(first) - len(first.lstrip())]
    return "\n".join(line.removeprefix(margin) for line in lines)


def _find_fenced_blocks(lines: list[str]) -> Iterator[Block]:
    """Return the blocks between fences. A fence that names a language opens a block even inside another block; a fence
    without a language closes it.

    A fence of different or fewer marks, or indented by four or more
    characters than the opening fence, is part of the block.
    """
    opened: re.Match[str] | None = None
    start = 0
    for number, line in enumerate(lines):
        fence = _FENCE.fullmatch(line)
        if opened is None:
            opened, start = fence, number + 1
        elif fence is None:
            if at_end := _FENCE_AT_END.fullmatch(line):
                yield _make_block(opened, [*lines[start:number], at_end["code"]])
                opened = None
        elif len(fence["indent"].expandtabs()) > len(opened["indent"].expandtabs()) + 3:
            continue
        elif _MARKER.fullmatch(fence["info"]):
            yield _make_block(opened, lines[start:number])
            opened, start = fence, number + 1
        elif fence["marks"].startswith(opened["marks"]):
            if _MARKER.fullmatch(opened["info"]) and not any(map(str.strip, lines[start:number])):
                start = number + 1  # the opening fence was repeated
                continue
            yield _make_block(opened, lines[start:number])
            opened = None
    if opened is not None:
        yield _make_block(opened, lines[start:])


def _make_block(opened: re.Match[str], lines: list[str]) -> Block:
    match = _LANGUAGE.match(opened["info"])
    language = match[1].lower() if match else ""
    if language.startswith("python") or re.search(r"\.py\b", opened["info"]):
        language = "python"
    if depth := min(opened["indent"].count(">"), MAX_QUOTATIONS):
        marks = re.compile(rf"(?:[ \t]*>[ ]?){{1,{depth}}}")  # further marks belong to the program
        lines = [line[match.end() :] if (match := marks.match(line)) else line for line in lines]
    while lines and _FENCE.fullmatch(lines[0]):
        lines = lines[1:]
    while lines and _FENCE.fullmatch(lines[-1]):
        lines = lines[:-1]
    return Block(language, _dedent(lines))


def _find_unfenced_program(response: str) -> str:
    """Return the response itself if it is a program, without sentences before and after that prevent parsing."""
    lines = response.split("\n")
    if not _CODE_LINE.search(response):
        indented = [line for line in lines if line.startswith(("    ", "\t")) or not line.strip()]
        lines = _dedent(indented).split("\n")
        if not _CODE_LINE.search("\n".join(lines)):
            return ""
    elif _is_python(response):
        return response
    starts = [number for number, line in enumerate(lines) if _CODE_LINE.match(line)][:3]
    for start in starts:
        ends = [number for number in range(start + 1, len(lines)) if not lines[number].strip()]
        for end in [len(lines), *reversed(ends)][:MAX_ENDS]:
            if _is_python(body := "\n".join(lines[start:end])):
                return body
    return response


def _is_python(source: str) -> bool:
    try:
        parse_program(source)
    except PARSE_ERRORS:
        return False
    return True
