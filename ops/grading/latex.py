r"""LaTeX and plain mathematics brought to one spelling, so that equal answers become equal strings.

What belongs here: rewriting that never changes a value (spacing, `\dfrac`, `\frac43`,
thousands, `sqrt(2)`), and splitting off a unit. What does not: deciding equality (`math`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ops.grading import units

_GREEK = (
    "alpha",
    "beta",
    "gamma",
    "delta",
    "epsilon",
    "theta",
    "lambda",
    "mu",
    "nu",
    "pi",
    "rho",
    "sigma",
    "tau",
    "phi",
    "psi",
    "omega",
)
_FUNCTIONS = (
    "sin",
    "cos",
    "tan",
    "cot",
    "sec",
    "csc",
    "arcsin",
    "arccos",
    "arctan",
    "sinh",
    "cosh",
    "tanh",
    "log",
    "ln",
    "exp",
    "gcd",
    "lcm",
    "min",
    "max",
    "det",
)
NAMES = frozenset((*_GREEK, *_FUNCTIONS, "sqrt", "frac", "infty", "circ", "cup", "cap", "cdot", "times", "pm"))
"""Letter sequences that are mathematics, not words."""

_SYMBOLS = {
    "−": "-",
    "–": "-",
    "×": r"\times ",
    "·": r"\cdot ",
    "π": r"\pi ",
    "°": r"^\circ",
    "∞": r"\infty ",
    "≤": r"\le ",
    "≥": r"\ge ",
    "∪": r"\cup ",
    "±": r"\pm ",
    "∈": r"\in ",
    "²": "^2",
    "³": "^3",
    "½": r"\frac{1}{2}",
    "θ": r"\theta ",
    "\u00a0": " ",
    "\u2009": " ",
    "\u202f": " ",
    "’": "'",
    "′": "'",
    r"\tfrac": r"\frac",
    r"\dfrac": r"\frac",
    r"\cfrac": r"\frac",
    r"\leq": r"\le",
    r"\geq": r"\ge",
    r"\neq": r"\ne",
    r"\lbrace": r"\{",
    r"\rbrace": r"\}",
    r"\langle": "(",
    r"\rangle": ")",
    r"\lbrack": "[",
    r"\rbrack": "]",
    r"\degree": r"^\circ",
    r"\infin ": r"\infty ",
    "{,}": ",",
    r"\textdollar": r"\$",
}
_REWRITES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\!\s*", ""),
        (r"\\(?:displaystyle|textstyle|limits|left|right|[bB]igg?[lrm]?)(?![A-Za-z])\.?", " "),
        (r"(?<!\\)\\(?:[,;:> ]|quad(?![A-Za-z])|qquad(?![A-Za-z]))|~", " "),
        (r"\\(?:math(?:rm|bf|it|sf)|boldsymbol|bm|operatorname\*?|vec|overrightarrow)\s*\{([^{}]*)\}", r"\1"),
        (r"\\(?:textbf|textrm|textit|textsf|texttt|mbox|hbox|emph)\s*\{", r"\\text{"),
        (r"\^\{\\circ\s*\}|\^\\circ", r"^\\circ "),
        (r"\\begin\{(?:b|v|B|small|p)?matrix\}|\\begin\{array\}(?:\{[^{}]*\})?", r"\\begin{pmatrix}"),
        (r"\\end\{(?:b|v|B|small|p)?matrix\}|\\end\{array\}", r"\\end{pmatrix}"),
        (r"\*\*", "^"),
        (r"\\text\{\s*,?\s*(?:and|or)\s*\}", ","),
        (r"(?<=[\d)}\]])\s*,?\s+(?:and|or)\s+(?=[\d\\({\[.-]|[a-z]\s*=)", ","),
        (r"(?<!\\)\b(infinity|infty|inf|oo)\b", r"\\infty "),
        (r"<=|=<", r"\\le "),
        (r">=", r"\\ge "),
        (r"(?<![\\A-Za-z])(" + "|".join(_GREEK + _FUNCTIONS) + r")(?![A-Za-z])", r"\\\1 "),
        (r"(?<![\\A-Za-z])sqrt\s*\(([^()]{1,200})\)", r"\\sqrt{\1}"),
        (r"(?<![\\A-Za-z])sqrt\s*(\d+|[a-z])", r"\\sqrt{\1}"),
        (r"(?<=[\w)}])\s*\*\s*(?=[\w(\\])", r"\\cdot "),
        (r"\^\(([^()]{1,60})\)", r"^{\1}"),
        (r"(?<![\d/.])(\d+)\s+(\d+)/(\d+)(?![\d/])", r"\1\\frac{\2}{\3}"),
        (r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}"),
        (r"\\frac\s*([A-Za-z\d])\s*\{", r"\\frac{\1}{"),
        (r"(\\frac\{[^{}]*\})\s*([A-Za-z\d])", r"\1{\2}"),
        (r"\\sqrt\s*([A-Za-z\d])", r"\\sqrt{\1}"),
        (r"([\^_])\s*\{\s*(\w)\s*\}", r"\1\2"),
    )
)
_SPACE = re.compile(r"(\\[A-Za-z]+)\s+(?=[A-Za-z])|(?<=\d)(\s+)(?=\d)|\s+")
_TEXT_UNIT = re.compile(
    r"(?P<value>.*[\w})\]!%])\s*\\text\{(?P<unit>[^{}]*)\}\s*(?:\^\{?(?P<power>[1-9])\}?)?\s*", re.S
)
_PLAIN_UNIT = re.compile(r"(?P<value>[-+]?[\d.,/]*\d(?:\\frac\{\d+\}\{\d+\})?)\s*(?P<unit>[A-Za-zµΩ]{2}[\w./^ *]*)")
_CURRENCY = re.compile(r"^(?P<sign>[-+]?)\s*(?:US|USD)?\s*\\?\$\s*(?=[\d.\\-])")


class Clean(NamedTuple):
    """`value` in its one spelling, the `unit` split off it ("" where none) and whether it is a `percent`."""

    value: str
    unit: str = ""
    percent: bool = False


def clean(text: str) -> Clean:
    """`text`'s one spelling. Equal results mean equal answers; the converse needs `math.judge`."""
    text = _unwrap(text.strip())
    for old, new in _SYMBOLS.items():
        text = text.replace(old, new)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = text.strip().rstrip(".;,").strip() if not text.rstrip().endswith("..") else text
    text, unit = _split_unit(text)
    percent = bool(re.search(r"\\?%$", text)) or unit in ("%", "percent")
    text = re.sub(r"\s*\\?%$", "", text)
    return Clean(squeeze(text), "" if percent else unit, percent)


def _unwrap(text: str) -> str:
    """Without the `$…$`, `\\(…\\)`, `**…**` or `` `…` `` around the whole of it."""
    for _ in range(4):
        for start, end in (
            ("$$", "$$"),
            ("$", "$"),
            (r"\(", r"\)"),
            (r"\[", r"\]"),
            ("**", "**"),
            ("`", "`"),
        ):
            inner = text[len(start) : len(text) - len(end)]
            wrapped = len(text) > len(start) + len(end) and text.startswith(start) and text.endswith(end)
            if wrapped and start not in inner:
                text = inner.strip()
                break
        else:
            return text
    return text


def _split_unit(text: str) -> tuple[str, str]:
    if match := _CURRENCY.match(text):
        rest, unit = _split_unit(text[match.end() :])
        return match.group("sign") + rest, unit if unit not in ("", "dollars", "dollar") else "$"
    if match := _TEXT_UNIT.fullmatch(text):
        unit = match.group("unit").strip()
        if not re.fullmatch(r"\W*|(?:and|or|if|for|where|when)", unit):
            value, power = match.group("value").replace("^\\circ", "").strip(), match.group("power")
            return value, f"{unit}^{power}" if power else unit
    if text.endswith(r"^\circ"):
        return text.removesuffix(r"^\circ").strip(), "degrees"
    plain = _PLAIN_UNIT.fullmatch(text)
    if plain and units.parse(plain.group("unit")) is not None:
        return plain.group("value"), plain.group("unit").strip()
    return text, ""


def squeeze(text: str) -> str:
    """Without spaces, but for those that end a command before a letter; thousands without commas."""
    text = re.sub(r"(?<!\d)(\d{1,3}(?: \d{3})+)(?!\d)", lambda m: m.group(1).replace(" ", ""), text)
    text = _SPACE.sub(lambda m: f"{m.group(1)} " if m.group(1) else " " if m.group(2) else "", text)
    if re.fullmatch(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?", text):
        text = text.replace(",", "")
    text = re.sub(r"(?<![\d.])\.(?=\d)", "0.", text)
    return text.removeprefix("+")


def words(value: str) -> str | None:
    r"""The bare letters of an answer in words (`\text{east}`, `Evelyn`, `\text{(C)}`); None for mathematics.

    Words never reach SymPy, to which "even" and "neve" are the same product of letters.
    """
    bare = re.sub(r"\\text\{([^{}]*)\}", r"\1", value)
    runs = [run for run in re.findall(r"(?<![\\A-Za-z])[A-Za-z]{3,}", bare) if run.lower() not in NAMES]
    if bare == value and not any(len(run) > 3 for run in runs) and not (runs and re.fullmatch(r"[A-Za-z ]+", bare)):
        return None
    kept = re.sub(r"[^a-z0-9.+/-]", "", bare.lower())
    return re.sub(r"(?<!\d)\.|\.(?!\d)|-(?!\d)", "", kept) or None
