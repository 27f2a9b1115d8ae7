"""Convert LaTeX and plain mathematics to one spelling, so that equal answers become equal strings.

With math-verify's own normaliser in front, five more of 972 correct forms are rejected and three of 589 wrong forms are
accepted, because it drops signs that carry meaning. With its repairs of fractions and roots in place of those in this
module, 23 more correct forms are rejected.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ops.grading import units

GREEK = (
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
NAMES = frozenset((*GREEK, *_FUNCTIONS, "sqrt", "frac", "infty", "circ", "cup", "cap", "cdot", "times", "pm"))
"""Letter sequences that are mathematics, not words."""

_CHARACTERS = str.maketrans(
    {
        "−": "-", "–": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": "/", "°": r"^\circ ", "∞": r"\infty ",
        "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "≡": r"\equiv ", "∪": r"\cup ", "∩": r"\cap ",
        "±": r"\pm ", "∈": r"\in ", "∅": r"\emptyset ", "ℝ": r"\mathbb{R}", "√": r"\sqrt ", "∛": r"\sqrt[3] ",
        "π": r"\pi ", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "λ": r"\lambda ",
        "φ": r"\phi ", "ω": r"\omega ", "μ": r"\mu ", "σ": r"\sigma ", "⟨": "(", "⟩": ")",
        "¢": r"\text{ cents}",
        "\u00a0": " ", "\u2009": " ", "\u202f": " ", "’": "'", "′": "'",
        "½": r"\frac{1}{2}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}",
        "⅕": r"\frac{1}{5}", "⅖": r"\frac{2}{5}", "⅗": r"\frac{3}{5}", "⅘": r"\frac{4}{5}", "⅙": r"\frac{1}{6}",
        "⅚": r"\frac{5}{6}", "⅐": r"\frac{1}{7}", "⅛": r"\frac{1}{8}", "⅜": r"\frac{3}{8}", "⅝": r"\frac{5}{8}",
        "⅞": r"\frac{7}{8}", "⅑": r"\frac{1}{9}", "⅒": r"\frac{1}{10}",
    }
)  # fmt: skip
_RAISED, _LOWERED = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "₀₁₂₃₄₅₆₇₈₉₊₋ₙ"
_LEVELS = str.maketrans(_RAISED + _LOWERED, "0123456789+-n" * 2)
_COMMANDS = {
    "tfrac": r"\frac", "dfrac": r"\frac", "cfrac": r"\frac", "leq": r"\le", "leqslant": r"\le", "geq": r"\ge",
    "geqslant": r"\ge", "neq": r"\ne", "lt": "<", "gt": ">", "lbrace": r"\{", "rbrace": r"\}", "langle": "(",
    "rangle": ")", "lbrack": "[", "rbrack": "]", "lvert": "|", "rvert": "|", "vert": "|", "degree": r"^\circ ",
    "infin": r"\infty ", "textdollar": r"\$", "varnothing": r"\emptyset ", "empty": r"\emptyset ",
    "thickapprox": r"\approx", "bar": r"\overline", "colon": ":", "R": r"\mathbb{R}", "Reals": r"\mathbb{R}",
    "dots": r"\ldots", "cdots": r"\ldots", "lparen": "(", "rparen": ")",
}  # fmt: skip
_COMMAND = re.compile(r"\\(" + "|".join(sorted(_COMMANDS, key=len, reverse=True)) + r")(?![A-Za-z])")
_FONT = re.compile(
    r"\\(?:math(?:rm|bf|it|sf|tt|normal|cal|up)|bold(?:symbol|math)?|bm|operatorname\*?|vec|overrightarrow|"
    r"displaystyle|textstyle)\s*\{"
)
SCALES = {"hundred": "10^2", "thousand": "10^3", "million": "10^6", "billion": "10^9", "trillion": "10^{12}",
          "dozen": "12"}  # fmt: skip
BASES = {
    name: str(base)
    for base, name in enumerate(
        ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
         "fourteen", "fifteen", "sixteen"), start=2,
    )
}  # fmt: skip
_SCALE = re.compile(r"(?<=[\d}])\s*(?:\\text\s*\{\s*)?\b(" + "|".join(SCALES) + r")s?\b(\s*\})?(?!ths?\b)")
_BASE_BELOW = re.compile(
    r"_\s*\{\s*\(?(?:\\text\s*\{)?\s*\(?\s*(?:base[\s~]*)?\}?\s*(\d+|" + "|".join(BASES) + r")\s*\)?\s*\}?\s*\)?\s*\}"
    r"|_\s*\\text\s*\{\s*(" + "|".join(BASES) + r")\s*\}"
)
_BASE_BEHIND = re.compile(
    r"(?<=[\dA-F])\s*(?:\\text\s*\{)?\s*\(?\s*(?:in\s+)?base[\s~-]*\}?\s*(\d+|" + "|".join(BASES) + r")\s*\)?\s*\}?\s*$"
)
_CURRENCY_NAMES = {
    **{code: code for code in ("AUD", "CAD", "NZD", "CHF", "CNY", "HKD", "SGD", "SEK", "NOK", "DKK", "PLN", "CZK",
                               "TRY", "BRL", "MXN", "ZAR", "KRW", "RUB")},
    "€": "euros", "EUR": "euros", "£": "pounds", "GBP": "pounds", "¥": "yen", "JPY": "yen", "円": "yen", "₹": "rupees",
    "INR": "rupees", "Rs": "rupees", "A\\$": "AUD", "C\\$": "CAD", "₽": "RUB", "₩": "KRW",
}  # fmt: skip
_CODES = "|".join(map(re.escape, ("USD", *_CURRENCY_NAMES)))
_CURRENCY_CODE = re.compile(
    rf"(?:\\text\s*\{{\s*)?(?:(?P<before>{_CODES})\.?\s*\}}?)?\s*"
    r"(?P<number>-?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?)\s*"
    rf"(?:\\text\s*\{{\s*)?(?P<behind>{_CODES})?\s*\}}?"
)
_RATIO = re.compile(r"(?:\\text\s*\{)?\s*(\d+)(?:\s*\\text\s*\{\s*to\s*\}\s*|(?:\s+|-)to(?:\s+|-))(\d+)\s*\}?", re.I)
_PLAIN = re.compile(r"(?<!\\)\\(?:[,;:> ]|quad(?![A-Za-z])|qquad(?![A-Za-z]))|~")
_BEFORE_JOIN = r"(?:(?<=[\d)}\]])|(?<=circ )|(?<=\b[a-zA-Z]))"
_AFTER_JOIN = r"(?=[\d\\({\[.-]|[A-Za-z]\s*(?:[=<>]|\\[lg]e)|[A-Z]$)"
_ALL_REALS = r"^(?:\\text\s*\{\s*)?[Aa]ll\s+real(?:\s+numbers|s)"
_REWRITES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\!\s*", ""),
        (r"(?<=\d)\{,\}(?=\d)", ","),
        (r"(?<=,)\s*(?:\\[,;: ]|\\q?quad(?![A-Za-z])|~)", " "),
        (r"\\(?:displaystyle|textstyle|limits|left|right|[bB]igg?[lrm]?)(?![A-Za-z])\.?", " "),
        (r"\\text\s*\{[\s.]*\}", " "),
        (r"\\(?:textbf|textrm|textit|textsf|texttt|textnormal|mbox|hbox|emph)\s*\{", r"\\text{"),
        (r"\\text\s*\{\s*([-+]?[\d.,/]*\d)\s*\}", r"\1"),
        (r"\\text\s*\{\s*([-+]?[\d.,/]*\d)\s+(?=[A-Za-z]{2})", r"\1\\text{ "),
        (r"\\text\s*\{\s*(\\?\$)\s*\}", r"\\$"),
        (r"\\text\s*\{\s*(\(?[A-Z]\)?(?:\s*,\s*\(?[A-Z]\)?)+)\s*\}", r"\1"),
        (r"(?<=\\text\{)\s*[Aa]n?\s+(?=[a-z]{3})", ""),
        (r"\^\{\\circ\s*\}|\^\\circ", r"^\\circ "),
        (r"\\begin\{(?:b|B|small|p)?matrix\}|\\begin\{array\}(?:\{[^{}]*\})?", r"\\begin{pmatrix}"),
        (r"\\end\{(?:b|B|small|p)?matrix\}|\\end\{array\}", r"\\end{pmatrix}"),
        (_ALL_REALS + r"\s+(?:except(?:\s+for)?|but|other\s+than)\s*\}?\s*(?:[a-z]\s*=\s*)?([^\s{}=]+?)\s*\}?$",
         r"\\mathbb{R}\\setminus\\{\1\\}"),
        (_ALL_REALS + r"\s*\}?$", r"\\mathbb{R}"),
        (r"(?<=\d)\s*min\.?$", r"\\text{ min}"),
        (r"\*\*", "^"),
        (r"^([a-z])\s+in\s+(?=[\[({\\])", r"\1\\in "),
        (r"\\mathbb\s*R(?![A-Za-z])", r"\\mathbb{R}"),
        (r"[:=]=", "="),
        (r"\\text\s*\{\s*,?\s*(?:and|or)\s*\}", ","),
        (r"(?:,\s*)+,", ","),
        (_BEFORE_JOIN + r"(?:\s*,)?\s+(?:and|or)\s+" + _AFTER_JOIN, ","),
        (r"(?<!\\)\b(infinity|infty|inf|oo)\b", r"\\infty "),
        (r"(?<![\w)}\]\s])\s*\+\s*\\infty", r"\\infty"),
        (r"<=|=<", r"\\le "),
        (r">=", r"\\ge "),
        (r"(?<![\\A-Za-z])(" + "|".join(GREEK + _FUNCTIONS) + r")(?![A-Za-z])", r"\\\1 "),
        (r"(?<![\\A-Za-z])sqrt(?=\s*\()", r"\\sqrt"),
        (r"(?<![\\A-Za-z])sqrt\s*(\d+|[a-z])", r"\\sqrt{\1}"),
        (r"(?<=[\w)}])\s*\*\s*(?=[\w(\\])", r"\\cdot "),
        (r"\^\(([^()]{1,60})\)", r"^{\1}"),
        (r"\^(-\d+|\d{2,})", r"^{\1}"),
        (r"\{([^{}]{1,80})\\over(?![A-Za-z])([^{}]{1,80})\}", r"\\frac{\1}{\2}"),
        (r"(?<![\d/.])(\d+)\s+(\d+)/(\d+)(?![\d/])", r"\1\\frac{\2}{\3}"),
        (r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}"),
        (r"\\frac\s*([A-Za-z\d])\s*\{", r"\\frac{\1}{"),
        (r"(\\frac\{[^{}]*\})\s*([A-Za-z\d])", r"\1{\2}"),
        (r"(\\sqrt\[3\])\s*\(?(\d+|[a-z])\)?", r"\1{\2}"),
        (r"\\sqrt\s*([A-Za-z\d])", r"\\sqrt{\1}"),
        (r"([\^_])\s*\{\s*(\w)\s*\}", r"\1\2"),
    )
)  # fmt: skip
_BRACKETED = re.compile(r"\\(?:(?P<frac>frac)|sqrt(?:\s*\[\d+\])?)(?=\s*\()")
_ROOT_SIGN = re.compile(r"(√|∛)\s*(?:\(([^()]{1,200})\)|(\d+|(?=[a-zπ])[a-zπ]))")
_LEVEL = re.compile(f"([{_RAISED}]+)|([{_LOWERED}]+)")
_SPACE = re.compile(r"(\\[A-Za-z]+)\s+(?=[A-Za-z])|(?<=\d)(\s+)(?=\d)|\s+")
_TEXT_UNIT = re.compile(
    r"(?P<value>.*[\w})\]!%])\s*\\text\s*\{(?P<unit>[^{}]*)\}\s*(?:\^\{?(?P<power>[1-9])\}?)?\s*", re.S
)
_WORD = r"[A-Za-zµΩ][A-Za-z'-]*(?:/[A-Za-z]+)*(?:\^\{?[1-9]\}?)?\.?"
_PLAIN_UNIT = re.compile(rf"(?P<value>\S|\S.*?[\w)}}\]!])(?:(?<=\d)|\s+)(?P<unit>{_WORD}(?:\s+{_WORD}){{0,7}})", re.S)
_PERCENT = re.compile(r"\s*(?:\\?%|(?:\\text\s*\{\s*)?\b(?:per ?cent|percentage|pct)\.?\s*\}?)$")
_MEASURED = re.compile(r"(?:[\d}\])!]|\\pi|(?<![\\A-Za-z])[A-Za-z])\s*$")
_CURRENCY = re.compile(r"^(?P<sign>[-+]?)\s*(?:US|USD)?\s*\\?\$\s*(?=[\d.\\-])")
_NO_UNIT = re.compile(
    r"\b(?:and|or|not|no|plus|minus|times|over|than|least|most|at|if|unless|except|when|where|for|each|"
    r"mod|modulo|hundreds?|thousands?|[mb]illions?|trillions?|dozens?|score|gross|half|halves|thirds?|quarters?|squared|"
    r"cubed|root|factorial|choose|between|percent|base|point|divided|multiplied|raised|power|out|[a-z]+(?:red|and|ion)ths?|tenths?)\b",
    re.I,
)
"""Words that change the value of the number before them, or hedge: text with one of them is not a unit."""


class NormalizedAnswer(NamedTuple):
    """An answer as a normalised `value`, the `unit` that was split off ("" without one), and whether it is a
    percentage."""

    value: str
    unit: str = ""
    is_percent: bool = False


def normalize_answer(text: str) -> NormalizedAnswer:
    """Return the normalised `text`. Equal results mean equal answers; the converse needs `math.grade_answer`."""
    return split_off_unit(normalize_spelling(text))


def normalize_spelling(text: str) -> str:
    """Return `text` with one spelling for each sign and command; spaces and units are kept."""
    text = _write_ratio_or_money(_unwrap(text.strip()))
    text = _ROOT_SIGN.sub(lambda m: rf"\sqrt{'[3]' if m[1] == '∛' else ''}{{{m[2] or m[3]}}}", text)
    text = _LEVEL.sub(lambda m: f"{'^' if m[1] else '_'}{{{m[0].translate(_LEVELS)}}}", text)
    text = _remove_fonts(_COMMAND.sub(lambda m: _COMMANDS[m[1]], text.translate(_CHARACTERS)))
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = _brackets_to_braces(text)
    if "base" in text or "_" in text:
        text = _BASE_BELOW.sub(lambda m: _write_base_index(m[1] or m[2]), text)
        text = _BASE_BEHIND.sub(lambda m: _write_base_index(m[1]), text)
    text = _SCALE.sub(lambda m: rf"\cdot {SCALES[m[1]]} " + ("" if m[2] or r"\text" not in m[0] else r"\text{"), text)
    text = _remove_braces(_PLAIN.sub(" ", text).strip())
    return text.strip().rstrip(".;,").strip() if not text.rstrip().endswith("..") else text


def _brackets_to_braces(text: str) -> str:
    r"""Return `\sqrt{3}` for `\sqrt(3)` and `\frac{1}{2}` for `\frac(1)(2)`, with any brackets inside."""
    for command in _BRACKETED.finditer(text):  # a bracket becomes a brace, so that no place changes
        spans, place = [], command.end()
        for _ in range(2 if command["frac"] else 1):
            place += len(text[place:]) - len(text[place:].lstrip())
            if text[place : place + 1] == "(" and (close := _find_closing_bracket(text, place)) > 0:
                spans.append((place, close))
                place = close + 1
        if len(spans) == (2 if command["frac"] else 1):
            for start, close in spans:
                text = f"{text[:start]}{{{text[start + 1 : close]}}}{text[close + 1 :]}"
    return text


def _find_closing_bracket(text: str, start: int) -> int:
    """Return the place of the bracket that closes the one at `start`; -1 without it."""
    depth = 0
    for position in range(start, len(text)):
        depth += (text[position] == "(") - (text[position] == ")")
        if not depth:
            return position
    return -1


def _write_ratio_or_money(text: str) -> str:
    r"""Return `3:2` for `3 to 2`, `\$5` for `USD 5`, `5\text{ euros}` for `5€`; any other text is unchanged."""
    if ratio := _RATIO.fullmatch(text):
        return f"{ratio[1]}:{ratio[2]}"
    if (money := _CURRENCY_CODE.fullmatch(text)) and money["number"] and (code := money["before"] or money["behind"]):
        return rf"\${money['number']}" if code == "USD" else rf"{money['number']}\text{{ {_CURRENCY_NAMES[code]}}}"
    return text


def _remove_braces(text: str) -> str:
    """Drop braces, except around a set in plain text such as `{3, -3}`."""
    if not text.startswith("{") or not text.endswith("}"):
        return text
    depth = 0
    for position, char in enumerate(text):
        depth += (char == "{") - (char == "}")
        if depth == 0 and position < len(text) - 1:
            return text
    return f"\\{text[:-1]}\\}}" if "," in text else text[1:-1]


def _write_base_index(base: str) -> str:
    base = BASES.get(base, base)
    return f"_{base}" if len(base) == 1 else f"_{{{base}}}"


def split_off_unit(text: str) -> NormalizedAnswer:
    """Return a normalised `text` without spaces, and its unit or percent sign separately."""
    bare = _PERCENT.sub("", text)
    if bare != text:
        return NormalizedAnswer(remove_spaces(bare), "", True)
    value, unit = _split_unit(text)
    return NormalizedAnswer(remove_spaces(value), unit)


def _unwrap(text: str) -> str:
    r"""Remove `$…$`, `\(…\)`, `**…**` or `` `…` `` around the whole text."""
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
            if wrapped and start not in inner.replace("\\$", "") and not inner.endswith("\\"):
                text = inner.strip()
                break
        else:
            return text
    return text


def _remove_fonts(text: str) -> str:
    r"""Remove `\mathbf{…}` and similar commands at any depth; their content is kept."""
    if not _FONT.search(text):
        return text
    kept: list[str] = []
    fonts: list[bool] = []
    position = 0
    while position < len(text):
        font = _FONT.match(text, position) if text[position] == "\\" else None
        if font:
            fonts.append(True)
            position = font.end()
            continue
        length = 2 if text[position] == "\\" else 1
        is_font = bool(fonts) and fonts.pop() if text[position] == "}" else False
        if text[position] == "{":
            fonts.append(False)
        if not is_font:
            kept.append(text[position : position + length])
        position += length
    return "".join(kept)


def _split_unit(text: str) -> tuple[str, str]:
    if match := _CURRENCY.match(text):
        rest, _ = _split_unit(text[match.end() :])
        return match.group("sign") + rest, "$"
    if match := _TEXT_UNIT.fullmatch(text):
        unit = match.group("unit").strip()
        if unit and not re.fullmatch(r"\W*", unit) and not _NO_UNIT.search(unit):
            value, power = match.group("value").replace("^\\circ", "").strip(), match.group("power")
            return value, f"{unit}^{power}" if power else unit
    if re.search(r"\^\\circ\s*[CF]?$", text):
        head, _, scale = text.rpartition(r"^\circ")
        return head.strip(), f"degrees {scale.strip()}".strip()
    plain = _PLAIN_UNIT.fullmatch(text)
    if plain and _is_plain_unit(plain.group("value"), plain.group("unit")):
        return plain.group("value").strip(), plain.group("unit").strip()
    return text, ""


def _is_plain_unit(value: str, unit: str) -> bool:
    """Return whether `unit`, plain letters after `value`, is a unit or a counted noun."""
    known = units.parse_unit(unit) is not None
    if extract_words(value) is not None or not _MEASURED.search(value) or _NO_UNIT.search(unit):
        return False
    # A single letter is an unknown: `4t` does not mean four tonnes; `70 ab` may be a product.
    return (known and len(re.findall(r"[A-Za-zµΩ]", unit)) > 1) or is_text(unit)


def is_text(unit: str) -> bool:
    """Return whether plain letters are words of a language, and not names of unknowns."""
    names = [re.match(r"[A-Za-z]*", word).group() for word in unit.split()]  # type: ignore[union-attr]
    return all(len(name) > 2 or name.lower() in _SMALL for name in names) and any(
        len(name) > 2 and name not in NAMES for name in names
    )


_SMALL = frozenset({"a", "an", "of", "in", "to", "by", "it", "he", "we", "on", "sq", "cu", "is", "do", "so"})


def remove_spaces(text: str) -> str:
    """Remove spaces, except those that end a command before a letter, and commas between thousands."""
    text = re.sub(r"(?<!\d)(\d{1,3}(?: \d{3})+)(?!\d)", lambda m: m.group(1).replace(" ", ""), text)
    # `81, 256` are two numbers, `81,256` is one.
    if re.fullmatch(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?", text.replace("- ", "-")):
        text = text.replace(",", "")
    text = _SPACE.sub(lambda m: f"{m.group(1)} " if m.group(1) else " " if m.group(2) else "", text)
    text = re.sub(r"(?<![\d.])\.(?=\d)", "0.", text)
    return text.removeprefix("+")


def extract_words(value: str) -> str | None:
    r"""Return the plain letters of an answer in words (`\text{east}`, `Evelyn`, `\text{(C)}`); None for mathematics.

    Words are never passed to SymPy, which reads "even" and "neve" as the same product of letters.
    """
    bare = re.sub(r"\\text\{([^{}]*)\}", r"\1", value)
    runs = [run for run in re.findall(r"(?<![\\A-Za-z])[A-Za-z]{3,}", bare) if run.lower() not in NAMES]
    if bare == value and not any(len(run) > 3 for run in runs) and not (runs and re.fullmatch(r"[A-Za-z ]+", bare)):
        return None
    return extract_letters(bare) or None


def extract_letters(text: str) -> str:
    """Return only letters and digits with their signs and decimal points, in lower case."""
    kept = re.sub(r"[^a-z0-9.+/-]", "", text.lower())
    return re.sub(r"(?<!\d)\.|\.(?!\d)|-(?!\d)", "", kept)
