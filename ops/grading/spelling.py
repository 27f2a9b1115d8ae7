"""Convert texts that differ only in how they are typed to one spelling; every symbol that carries meaning is kept.

`CHARACTERS`, `COMMANDS`, `REWRITING_RULES` and `PROSE_RULES` are the complete list of what is treated as equal, with
the reason why that is safe. A symbol that they do not name is a token of its own: `x ≤ 3` and `x ≥ 3` have different
tokens, as have `C#` and `C`. The case of letters and accents are compared word by word (`has_same_words`).
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple


class SpellingRule(NamedTuple):
    """A pattern whose matches are replaced, and why texts that become equal by it have the same meaning."""

    pattern: re.Pattern[str]
    replacement: str
    reason: str


def _rule(pattern: str, replacement: str, why: str) -> SpellingRule:
    return SpellingRule(re.compile(pattern), replacement, why)


CHARACTERS = {
    # one minus sign or hyphen, apostrophe or prime, quotation mark, in several designs
    "−": "-", "–": "-", "‐": "-", "‑": "-", "‒": "-", "’": "'", "‘": "'", "′": "'", "´": "'", "ʹ": "'", "ʼ": "'",
    "“": '"', "”": '"', "„": '"', "‟": '"', "«": '"', "»": '"',
    # the same operator longer, slanted, or beside its form in ASCII
    "⩽": "≤", "≦": "≤", "⩾": "≥", "≧": "≥", "⟶": "→", "⟵": "←", "⟹": "⇒", "⟺": "⇔", "⟷": "↔", "⋅": "·", "∙": "·",
    "∣": "|", "∕": "/", "⁄": "/", "∗": "*", "∼": "~",
    # one character for what is usually two, and what is not printed at all
    "℃": "°C", "℉": "°F", "㎡": "m^2", "㎥": "m^3", "ℓ": "l", "ℎ": "h", "\u200b": "", "\u200c": "", "\u200d": "",
    "\u2060": "", "\ufeff": "", "\u00ad": "",
}  # fmt: skip
"""Typographic variants. Fonts, widths, ligatures, fractions and raised or lowered characters are those of Unicode."""

_GREEK = {
    name.lower().replace("lamda", "lambda"): chr(code)
    for code in range(0x3B1, 0x3CA)
    for name in [unicodedata.name(chr(code)).removeprefix("GREEK SMALL LETTER ")]
    if " " not in name
}
_NAMES = {letter: name for name, letter in _GREEK.items()} | {
    letter.upper(): name.capitalize() for name, letter in _GREEK.items()
}
COMMANDS = {
    **_GREEK, **{name.capitalize(): letter.upper() for name, letter in _GREEK.items()},
    "varepsilon": "ε", "vartheta": "θ", "varphi": "φ", "varrho": "ρ", "varpi": "π",
    "le": "≤", "leq": "≤", "leqslant": "≤", "ge": "≥", "geq": "≥", "geqslant": "≥", "ne": "≠", "neq": "≠", "lt": "<",
    "gt": ">", "ll": "≪", "gg": "≫", "approx": "≈", "sim": "~", "simeq": "≃", "cong": "≅", "equiv": "≡", "propto": "∝",
    "land": "∧", "wedge": "∧", "lor": "∨", "vee": "∨", "lnot": "¬", "neg": "¬", "forall": "∀", "exists": "∃",
    "nexists": "∄", "top": "⊤", "bot": "⊥", "vdash": "⊢", "models": "⊨", "oplus": "⊕", "otimes": "⊗",
    "cap": "∩", "cup": "∪", "in": "∈", "notin": "∉", "ni": "∋", "subset": "⊂", "subseteq": "⊆", "supset": "⊃",
    "supseteq": "⊇", "emptyset": "∅", "varnothing": "∅", "setminus": "∖", "to": "→", "rightarrow": "→",
    "longrightarrow": "→", "leftarrow": "←", "gets": "←", "leftrightarrow": "↔", "Rightarrow": "⇒", "implies": "⇒",
    "Leftarrow": "⇐", "Leftrightarrow": "⇔", "iff": "⇔", "uparrow": "↑", "downarrow": "↓", "mapsto": "↦",
    "pm": "±", "mp": "∓", "times": "×", "cdot": "·", "div": "÷", "ast": "*", "star": "⋆", "circ": "∘", "bullet": "•",
    "infty": "∞", "partial": "∂", "nabla": "∇", "sum": "∑", "prod": "∏", "int": "∫", "oint": "∮", "perp": "⊥",
    "parallel": "∥", "mid": "|", "vert": "|", "lvert": "|", "rvert": "|", "Vert": "∥", "angle": "∠", "triangle": "△",
    "therefore": "∴", "because": "∵", "ldots": "…", "dots": "…", "cdots": "…", "prime": "'", "degree": "°",
    "langle": "⟨", "rangle": "⟩", "lbrace": "{", "rbrace": "}", "lbrack": "[", "rbrack": "]", "hbar": "ħ", "ell": "l",
    "dagger": "†", "sqrt": "√",
}  # fmt: skip
"""Commands of LaTeX that are the name of one character."""

_LAYOUT = r"left|right|displaystyle|textstyle|limits|[bB]igg?[lrm]?|quad|qquad"
_FONTS = r"text(?:bf|rm|it|sf|tt|normal)?|math(?:rm|bf|it|sf|tt|normal|up)|mbox|hbox|operatorname|boxed|fbox|emph|bm"
_IN_FONT = rf"\\(?:{_FONTS})\s*\{{([^{{}}]*)\}}"
_OPEN, _CLOSED = r"(?<![^\s(\[{,;:])", r"(?![^\s)\]},;:.!?])"
"""Before and behind a pair of marks that encloses words: space, a bracket or punctuation."""

REWRITING_RULES = (
    _rule(r"\{/?\\?eq\}", "", "a data set's mark around a formula"),
    _rule(_IN_FONT, r"\1", "a font of LaTeX, or a box"),
    _rule(_IN_FONT, r"\1", "the same around another one"),
    _rule(rf"\\(?:{_LAYOUT})(?![A-Za-z])\.?", " ", "the size or the place of what follows"),
    _rule(r"(?<=[\d}$)])\\[,;:! ]\s*(?=[\\\w$({])", " ", "a small space of LaTeX behind a number"),
    _rule(r"(?<=\d)\{,\}(?=\d{3})", ",", "LaTeX for a comma without a space behind it"),
    _rule(r"\^\s*(?:\{\s*∘\s*\}|∘)", "°", "LaTeX has no other sign for degrees"),
    _rule(r"\^\s*(?:\{\s*('+)\s*\}|('))", r"\1\2", "a prime is raised by itself"),
    _rule(r"\\([%$&#_{}])", r"\1", "LaTeX requires the backslash before these characters"),
    _rule(rf"{_OPEN}\*\*(?! )([^*]+)(?<! )\*\*{_CLOSED}", r"\1", "Markdown's bold: a pair around words"),
    _rule(rf"{_OPEN}__(?! )([^_]+)(?<! )__{_CLOSED}", r"\1", "Markdown's bold: a pair around words"),
    _rule(rf"{_OPEN}\*(?! )([^*]*[^\W\d_]{{2}}[^*]*)(?<! )\*{_CLOSED}", r"\1", "Markdown's italics: a pair, words"),
    _rule(rf"{_OPEN}_(?! )([^_]*[^\W\d_]{{2}}[^_]*)(?<! )_{_CLOSED}", r"\1", "Markdown's italics: a pair, words"),
    _rule(rf"{_OPEN}`([^`]+)`{_CLOSED}", r"\1", "Markdown's typewriter font: a pair"),
    _rule(rf'{_OPEN}"([^"]+)"{_CLOSED}', r"\1", "a pair of quotation marks; one alone may be a prime"),
    _rule(rf"{_OPEN}'([^\W\d_][^']*)'{_CLOSED}", r"\1", "a pair of single quotation marks"),
    _rule(r"(?<=\d)\s*∶\s*(?=\d)", ":", "the sign of a ratio beside its form in ASCII"),
    _rule(r"\s!=", " ≠", "unequal in programs; without the space before it, `5!=` is a factorial"),
    _rule(r"<={1,2}>", "⇔", "an arrow in ASCII"),
    _rule(r"<-{1,2}>", "↔", "an arrow in ASCII"),
    _rule(r"(?<![-<])-{1,2}>", "→", "an arrow in ASCII"),
    _rule(r"(?<![<=])={1,2}>", "⇒", "an arrow in ASCII"),
    _rule(r"<=", "≤", "the keyboard has no other sign"),
    _rule(r">=", "≥", "the keyboard has no other sign"),
    _rule(r"\+\s?/\s?-", "±", "the keyboard has no other sign"),
    _rule(r"\.\s?\.\s?\.", "…", "the keyboard has no other sign"),
    _rule(r"(?<![A-Za-z])sqrt(?=\s*[({])", "√", "the name of the function in programs"),
    _rule(r"√\s*\[3\]", "∛", "a cube root in LaTeX"),
    _rule(r"([√∛])\s*\{([^{}]*)\}", r"\1(\2)", "the brackets of LaTeX"),
    _rule(r"([√∛])\s*\(\s*(\d+(?:\.\d+)?|[^\W\d_])\s*\)(?![\w(])", r"\1\2", "brackets around one number or letter"),
    _rule(r"(?<=[\w)\]])\s?\*\*\s?(?=[\w(-])", "^", "a power in programs"),
    _rule(
        r"\^\s*(?:\{([^{}]*)\}|\(([^()]*)\)|(\d*[-+](?![\w(.])|[-+]?\d+(?:\.\d+)?|[^\W\d_]|[*†]))", r"^(\1\2\3)",
        "brackets around an exponent; without them it is a number, a letter or a charge",
    ),
    _rule(
        r"(?<=[\w)}\]])_(?:\{([^{}]*)\}|\(([^()]*)\)|(\d+|[^\W\d_]+))", r"_(\1\2\3)",
        "brackets around an index; without them it is a number or letters",
    ),
)  # fmt: skip
"""The rewriting rules for the whole text, in this order."""

PROSE_RULES = (
    _rule(r"(?<!\S)(?:[Aa]n|[Tt]he|AN|THE)(?=\s+\w)|(?<!\S)a(?=\s+[^\W\d_]{2})|^A(?=\s+[a-z]{2})", " ", "an article"),
    _rule(r"\s*—\s*", " - ", "a longer dash"),
    _rule(r"(?<=[^\W\d_]{2})-(?=[^\W\d_]{2})", " ", "the hyphen of a compound; a minus sign between words has spaces"),
    _rule(r"(?<=[^\W\d_]{2})[,;:](?=\s+(?:\(|[^\W\d_]{2}))", " ", "punctuation between two words"),
    _rule(r"(?<=[\w)\]%\"'])\.(?=\s+[^\W\d]|\s*$)", " ", "the stop of a sentence or an abbreviation"),
    _rule(r"\b([A-Z])\.(?=[A-Z](?![^\W_]))", r"\1", "the stops inside an abbreviation such as U.S."),
    _rule(r"(?<=\w)\s*&\s*(?=\w)", " and ", "the sign for this word"),
)
"""The rules for what is ignored when texts are compared word by word."""

_COMMAND = re.compile(r"\\([A-Za-z]+)[ ]?")
_ACCENTS = {"bar": "\u0304", "overline": "\u0304", "hat": "\u0302", "widehat": "\u0302", "tilde": "\u0303",
            "dot": "\u0307", "ddot": "\u0308", "vec": "\u20d7"}  # fmt: skip
_ACCENTED = re.compile(rf"\\({'|'.join(_ACCENTS)})(?:\s*\{{\s*([^\W\d_])\s*\}}|\s([^\W\d_])(?![^\W\d_]))")
_SETS = dict(zip("RNZQC", "ℝℕℤℚℂ", strict=True))
_SET = re.compile(r"\\mathbb\s*(?:\{\s*([RNZQC])\s*\}|([RNZQC])(?![A-Za-z]))")
_ENTITY = re.compile(r"&(?:[A-Za-z]+|#\d+);")
_WRAPPINGS = (*((mark, mark) for mark in ("**", "__", "*", "_", "`", '"', "$$", "$")), (r"\(", r"\)"), (r"\[", r"\]"))
_STOP = re.compile(r"(?<![.\s])\s*(?<!…)(?:\.|(?<=\w)[,;])$")
_FORMULA = re.compile(r"(?<![^\W_])((?:(?:[A-Z][a-z]?|[()])(?:_\(\d+\)|\d+)?)+)(?![^\W_])(?:\^\(([-+])\)(?![\w(]))?")
_INDEX = re.compile(r"_\((\d+)\)")
_ELEMENTS = frozenset(
    re.findall(
        "[A-Z][a-z]?",
        "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y Zr "
        "Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os Ir "
        "Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr",
    )
)
_SPECIAL_ALPHABETS = ("DOUBLE-STRUCK", "SCRIPT", "FRAKTUR", "BLACK-LETTER")
_MARKS = r"[\u0300-\u036f\u20d0-\u20f0]*"
_TOKEN = re.compile(
    rf"(?:\d{{1,3}}(?:,\d{{3}})+(?!\d)|\d+)(?:\.\d+)(?!\d)|\d{{1,3}}(?:,\d{{3}})+(?![^\W_])|\.\d+"
    rf"|[α-ωΑ-Ω]{_MARKS}|(?:[^\W_α-ωΑ-Ω]{_MARKS})+|[^\s\w]{_MARKS}|\S"
)
_PAIRED_GENES = re.compile(r"(?:([A-Za-z])(?i:\1))+")
_FUNCTION_WORDS = frozenset(re.findall(r"\w+", "of in to is on by as at an be if or so up my we he do go no"))
_MIN_CASELESS_LENGTH, _MIN_ACCENTLESS_LENGTH = 5, 3
"""The length from which the case of a word's letters has no meaning, and the length from which a word may be typed
without its accents."""


# ── spelling ─────────────────────────────────────────────────────────────────


@lru_cache(maxsize=4096)
def normalize_spelling(text: str) -> str:
    """Return `text` in one spelling of its characters and LaTeX, without marks around the whole and a final stop."""
    text = unicodedata.normalize("NFC", _ENTITY.sub(lambda match: html.unescape(match[0]), text))
    text = "".join(_write_at_level(level, "".join(run)) for level, run in groupby(text, _find_script_level))
    text = _SET.sub(lambda match: _SETS[match[1] or match[2]], text)
    text = _COMMAND.sub(lambda match: COMMANDS.get(match[1], match[0]), text)
    text = _ACCENTED.sub(lambda match: f"{match[2] or match[3]}{_ACCENTS[match[1]]}", text)
    text = _strip_wrappings(text)
    for rule in REWRITING_RULES:
        text = rule.pattern.sub(rule.replacement, text)
    return _strip_wrappings(_FORMULA.sub(_write_chemical_formula, text) if "(" in text else text)


def split_tokens(text: str) -> tuple[str, ...]:
    """Return the words and symbols of a text; an article and the punctuation of prose are not among them."""
    text = normalize_spelling(text)
    for rule in PROSE_RULES:
        text = rule.pattern.sub(rule.replacement, text)
    return tuple(token.replace(",", "") if token[0].isdigit() else token for token in _TOKEN.findall(text))


def normalize_words(text: str) -> str:
    """Return the tokens with single spaces between them, in lower case, to look words up."""
    return " ".join(split_tokens(text)).casefold()


def is_same_text(left: str, right: str) -> bool:
    """Return whether two texts, neither of which is empty, have the same words and symbols."""
    return has_same_words(split_tokens(left), split_tokens(right))


def has_same_words(left: Sequence[str], right: Sequence[str]) -> bool:
    """Return whether the tokens are the same except for case and accents that carry no meaning."""
    if len(left) != len(right) or not left:
        return False
    is_alone = sum(char.isalpha() for token in left for char in token) == 1
    return all(one == other or _is_same_word(one, other, is_alone) for one, other in zip(left, right, strict=True))


def list_symbols(text: str) -> list[str]:
    """Return the symbols of a text without those that LaTeX uses to group and to name its commands."""
    return sorted(
        token for token in split_tokens(text) if not token[0].isalnum() and token not in ("\\", "{", "}", "(", ")")
    )


def _find_script_level(char: str) -> str:
    """Return "^" for a raised character, "_" for a lowered one, "" for any other."""
    kind = unicodedata.decomposition(char).partition(" ")[0]
    if unicodedata.category(char) == "So":
        return ""
    return {"<super>": "^", "<sub>": "_"}.get(kind, "")


def _write_at_level(level: str, run: str) -> str:
    characters = "".join(map(_normalize_character, run))
    return f"{level}({characters})" if level else characters


@lru_cache(maxsize=4096)
def _normalize_character(char: str) -> str:
    """Return a character without its font, width or level; a symbol or a letter of a special alphabet is unchanged."""
    if char in CHARACTERS:
        return CHARACTERS[char]
    kind, _, codes = unicodedata.decomposition(char).partition("> ")
    inner = "".join(chr(int(code, 16)) for code in codes.split())
    is_accent_alone = inner.startswith(" ") and inner != " "
    is_sign = unicodedata.category(char) == "So" or (unicodedata.category(char) == "Sc" and inner.isalpha())
    if not inner or kind == "<circle" or is_accent_alone or is_sign:
        return char
    if kind == "<font" and any(style in unicodedata.name(char) for style in _SPECIAL_ALPHABETS):
        return char
    typed = "".join(map(_normalize_character, inner))
    return f" {typed}" if kind == "<fraction" else typed


def _strip_wrappings(text: str) -> str:
    """Return the text without space, a final stop, and pairs of quotes, emphasis or formula marks around the whole."""
    while True:
        before, text = text, _STOP.sub("", text.strip())
        for start, end in _WRAPPINGS:
            inner = text[len(start) : len(text) - len(end)]
            wrapped = text.startswith(start) and text.endswith(end) and len(text) > len(start) + len(end)
            if wrapped and start not in inner and end not in inner and not inner.endswith("\\"):
                text = inner.strip()
                break
        if text == before:
            return text


def _write_chemical_formula(match: re.Match[str]) -> str:
    """Return a chemical formula as it is typed, H2O and Na+; any other indices are unchanged."""
    body, charge = match[1], match[2]
    symbols = re.findall(r"[A-Z][a-z]?", body)
    if not symbols or not _ELEMENTS.issuperset(symbols) or ("_(" not in body and not charge):
        return match[0]
    return _INDEX.sub(r"\1", body) + (charge or "")


# ── words ────────────────────────────────────────────────────────────────────


def _is_same_word(left: str, right: str, is_alone: bool) -> bool:
    """Return whether two words differ only in case or accents that carry no meaning.

    The case of a single letter counts, unless the text has no other (`C#`); so does that of genes (`Aa`), of two
    capitalised words of two letters (`Co`, `CO`) and of a mixed word of up to four letters beside another (`CoO`,
    `COO`). An accent counts on a short word (`x̄`) and beside another accent.
    """
    one, other = _NAMES.get(left, left), _NAMES.get(right, right)
    if one != left or other != right:
        return one == other
    bare = _remove_accents(left), _remove_accents(right)
    if bare[0] != left or bare[1] != right:
        if bare[0] != left and bare[1] != right:
            return _is_same_case(*bare, is_alone) and _list_accents(left) == _list_accents(right)
        if len(bare[0]) < _MIN_ACCENTLESS_LENGTH:
            return False
    return bare[0] == bare[1] or _is_same_case(*bare, is_alone)


def _is_same_case(left: str, right: str, is_alone: bool) -> bool:
    if left.casefold() != right.casefold():
        return False
    letters = [char for char in left if char.isalpha()]
    if len(letters) <= 1:
        return is_alone
    if len(letters) >= _MIN_CASELESS_LENGTH and not _PAIRED_GENES.fullmatch(left):
        return True
    if _PAIRED_GENES.fullmatch(left):
        return left == right
    if left.islower() or right.islower() or left.casefold() in _FUNCTION_WORDS:
        return True
    ordinary = all(word.isupper() or word.istitle() for word in (left, right))
    return ordinary and len(letters) > 2


def _list_accents(word: str) -> list[str]:
    return [char for char in unicodedata.normalize("NFD", word) if unicodedata.combining(char)]


def _remove_accents(word: str) -> str:
    if word.isascii():
        return word
    kept = "".join(char for char in unicodedata.normalize("NFD", word) if not unicodedata.combining(char))
    return unicodedata.normalize("NFC", kept)
