r"""Interpret backslashes in subtasks, so that LaTeX stays unchanged and a rendered subtask is read back unchanged.

A string is written in one of two ways, which its backslashes distinguish:

- *escaped*, as Python and JSON want it: every backslash is doubled or begins one of the escapes
  `\n \r \t \" \' \uXXXX` (and a backslash at the end of a line joins it with the next);
- *pasted*: at least one backslash begins something else, such as `\frac`, `\xi` or `\{`. Then every
  backslash stands as it is, doubled ones (`\\` ends a row in LaTeX) too; only the escapes above are read.

`\n`, `\r` and `\t` begin no escape where they begin a LaTeX command: `\nu`, `\rho`, `\text`.
"""

from __future__ import annotations

import json
import re

_LATEX_COMMANDS = re.compile(
    r"""text[a-z]*+
    | n(?:Leftarrow|Rightarrow|Vdash|abla|atural|cong|e|earrow|eg|eq|ewcommand|ewline|exists|geq|geqslant|gtr|leftarrow
        |leq|leqslant|oalign|obreak|oindent|olimits|onumber|orm|ormalsize|ot|otag|otin|parallel|prec|rightarrow|sim
        |subseteq|succ|supseteq|u|vdash|warrow)
    | r(?:aggedright|aise|aisebox|angle|brace|brack|ceil|ef|enewcommand|estriction|floor|group|hd|ho|ight|ightarrow
        |ightharpoondown|ightharpoonup|ightleftarrows|ightleftharpoons|ightrightarrows|ightsquigarrow|lap|m|oot|times
        |ule|vert|Vert)
    | t(?:ag|an|anh|au|binom|frac|herefore|heta|hickapprox|hicksim|hinspace|ilde|imes|iny|o|op|riangle|riangledown
        |riangleleft|rianglelefteq|riangleq|riangleright|rianglerighteq|t|woheadrightarrow)""",
    re.VERBOSE,
)
"""The LaTeX commands that begin like an escape. `\\ni` and `\\nless` are missing, because they are more often a new
line before "i" or "less"."""

_BLANKS = {"n": "\n", "r": "\r", "t": "\t"}
_BACKSLASH = re.compile(
    r"""\\(?: (?P<pair>\\) | (?P<quote>["'“”‘’]) | (?P<line>\r?\n) | u(?P<code>[0-9A-Fa-f]{4})
            | (?P<blank>[nrt])(?P<word>[A-Za-z]*+) )?+""",
    re.VERBOSE,
)
_JSON_ESCAPE = re.compile(r'\\(?:(?P<blank>[nrt])(?P<word>[A-Za-z]*+)|(?P<other>[bf])|[\\"u])')


def unescape_text(literal: str) -> str:
    """Return the text that a string literal without its quotes stands for."""
    pasted = any(_stays_as_written(backslash) for backslash in _BACKSLASH.finditer(literal))
    return _BACKSLASH.sub(lambda backslash: _replace_backslash(backslash, pasted), literal)


def quote_text(text: str) -> str:
    """Return a string in double quotes that `unescape_text` reads back as `text`."""
    return _JSON_ESCAPE.sub(_avoid_latex_command, json.dumps(text, ensure_ascii=False))


def _stays_as_written(backslash: re.Match[str]) -> bool:
    return backslash[0] == "\\" or _is_latex_command(backslash)


def _is_latex_command(backslash: re.Match[str]) -> bool:
    if backslash["blank"] is None:
        return False
    word = backslash["blank"] + backslash["word"]
    return _LATEX_COMMANDS.fullmatch(word) is not None


def _replace_backslash(backslash: re.Match[str], pasted: bool) -> str:
    if backslash["pair"]:
        return backslash[0] if pasted else "\\"
    if backslash["quote"]:
        return backslash["quote"]
    if backslash["line"]:
        return ""
    if backslash["code"]:
        return chr(int(backslash["code"], 16))
    if _stays_as_written(backslash):
        return backslash[0]
    return _BLANKS[backslash["blank"]] + backslash["word"]


def _avoid_latex_command(escape: re.Match[str]) -> str:
    """Return a JSON escape as a code such as `\\u000a` if it would otherwise be read as a LaTeX command."""
    if escape["other"]:
        return "\\u0008" if escape["other"] == "b" else "\\u000c"
    if _is_latex_command(escape):
        return f"\\u{ord(_BLANKS[escape['blank']]):04x}{escape['word']}"
    return escape[0]
