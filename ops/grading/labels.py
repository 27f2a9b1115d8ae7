"""Find the letters of choices that a text names, and whether it affirms or denies them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from ops.grading.extract import extract_clause_before, is_hypothetical

Stance = Literal["affirmed", "denied", "asked", "named"]
CHOICE_PLACEHOLDER = "…"
"""Stands for the text of a choice after its label."""

_VERBS = (
    r"is(?!\s+an?\s+(?!correct|right|good|better|best|valid|plausible|possible|reasonable))|isn['’]t|was|wasn['’]t|"
    r"because|since|matches|fits|seems|appears|looks|has|does|doesn['’]t|gives|remains|describes|states|holds|works|"
    r"fails|contradicts|would|could|cannot|can['’]t|must|being|it\s+is|(?:and|or|nor|over|versus|"
    r"vs\.?)\s+(?:options?\s+|choices?\s+)?[\W_]?[A-Z](?![\w'’])|instead|rather|alone|are|were|only(?=\W)|here"
)
_DECORATED = (
    r"(?<![\w\\])\((?P<paren>[A-Za-z])\)(?!\s*(?:=(?!>)|[+^_]))|(?<![\w\])/·*^+=-])(?<!\w\()\[(?P<square>[A-Z])\](?!\s*[(\[/_^+=·<>⇌]|\s+-|\w)|\*\*\(?(?P<bold>[A-Z])[).:]?\*\*|"
    r"\*\*\(?(?P<bolder>[A-Z])[).:](?=\s)|(?<![\w*])\*(?P<slanted>[A-Z])\*(?![\w*])|(?<!\w)__(?P<lined>[A-Z])__(?!\w)|"
    r"`\(?(?P<code>[A-Z])[).]?`|(?<!\w)(?P<quote>[\"'“‘])(?P<quoted>[A-Z])[\"'”’](?!\w)"
)
_NAMED = (
    r"(?i:\b(?:option|choice|letter)s?)[\s:]{1,3}[\"'“(*_]{0,3}(?P<named>[A-Zb-hj-z](?![\w'’])|"
    r"[ai](?=[\"'”)*_]{0,3}(?:$|[.,;:\n])))"
)
_BARE = (
    r"(?:(?<![\w'’\\$^+=<>/&.°-])(?<![\[(](?=[A-Z][\])]))|(?<=\b[A-J][/&–-]))(?P<bare>(?!I\s+(?:was|has|would|could|can|must|do)\w*\b(?!\s+be\b))[A-Z])(?=[\"'”’*_]{0,3}(?:\s*$|\s*\n|[)\].,;:!?…](?![\w])|"
    r"\)|\s+[-–—→(✓✔✅✗❌✘×←]|[–—]|[/–-][A-Z]\b|\s*&\s*[A-Z]\b|[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]|"
    r"\s+(?:" + _VERBS + r")(?![\w])))"
)
# The lookahead rejects most characters before the alternatives are tried.
_LABEL = re.compile("(?=[A-Zocl(\\[*_`\"'“‘])(?:" + "|".join((_DECORATED, _NAMED, _BARE)) + ")")
_BEFORE_BARE = re.compile(
    r"(?:^|[\n.,;:!?()\[\]\"“'*_>|→⇒—–-]|\b(?:so|thus|hence|therefore|then|is|be|it['’]?s|that['’]s|choose|chose|"
    r"choosing|select|selected|selecting|pick|picked|picking|option|options|choice|choices|answer|answers|letter|with|"
    r"for|to|and|or|nor|not|that|only|because|since|than|eliminates?d?|eliminating|mark|marks|marked|say|says|think|"
    r"leaves?|leaving|prefer|conclude|guess|out|both|either|neither|between|but|on|unlike|of|over|versus|vs|are|was|as|"
    r"reject|exclude|excluding|discard|matches|namely|if|like|exactly|clearly|definitely|probably|likely|why|while|"
    r"whereas|when|though|although|actually|rather|no|yes|wait|i['’]d|answered|"
    r"answering|me|call|favou?rs?|believe))[\s*_(\"'“]*$",
    re.IGNORECASE,
)
_JOIN = re.compile(
    r"[ \t…]{0,6}|"
    r"[\s\"'”’()\]*_.:…]{0,6}(?:,\s*(?:and|or|nor|and/or)|,|/|&|\band/or\b|\band\b|\bor\b|\bnor\b|[-–—]|\bto\b|\|)\s*"
    r"(?:(?:either|also|maybe|possibly|perhaps|even)\s+)?(?:(?:options?|choices?)\s+)?[\s\"'“(\[*_]{0,4}",
    re.IGNORECASE,
)
_DENIED_BEFORE = re.compile(
    r"(?:\bnot|n['’]t|\bneither|\bnor|\bnever|\brul(?:e|es|ed|ing) out|\beliminat\w+|\bexclud\w+|\bdiscard\w*|"
    r"\breject\w*|\brather than|\binstead of|\bunlike|\bover|\bexcept|\bthan|\bwithout|\bdismiss\w*)"
    r"(?:\s+(?:be|the|options?|choices?|answers?|letter|either|both|also|necessarily|just|simply))*[\s:\"'“(\[*_]*$"
    r"|\b(?:wrong|incorrect|false)(?: (?:options|choices|answers|ones))?:[\s\"'“(\[*_]*$",
    re.IGNORECASE,
)
_IS = (
    r"(?:(?:is|are|was|were|would be|must be|has to be|should be|seems?|appears?|looks?|remains|being|can be|to be)\s+)"
)
_ADVERB = (
    r"(?:(?:to be|also|both|all|clearly|definitely|therefore|thus|hence|indeed|simply|just|actually|obviously|"
    r"certainly|likely|most likely|probably|partially|partly|factually|then|really|surely|the|a|an|my|your|our|only|"
    r"single|one|best|final|most|more)\s+){0,4}"
)
_DENIED_AFTER = re.compile(
    r"[\s\"'”’)\]*_.:,…]{0,6}(?:\(\s*)?" + f"(?:{_IS}|[–—:-]\\s*)?{_ADVERB}"
    r"(?:not\b(?!\s+(?:options?\s+|choices?\s+)?[\W_]{0,3}[A-Z](?!\w))|isn['’]t\b|aren['’]t\b|wasn['’]t\b|wrong\b|incorrect\b|false\b|out\b|"
    r"(?:far from|nowhere near|by no means|anything but|hardly)\b|eliminated\b|"
    r"(?:can be |is )?(?:ruled|crossed) out\b|excluded\b|rejected\b|invalid\b|untrue\b|"
    r"inaccurate\b|irrelevant\b|impossible\b|implausible\b|unlikely\b|inconsistent\b|distractor\b|tempting\b|nope?\b|"
    r"does(?:n['’]t| not)\b|do(?:n['’]t| not)\b|can(?:not|['’]t| not| be (?:ruled out|eliminated|excluded|rejected|"
    r"discarded))\b|"
    r"fails?\b|contradicts?\b|✗|✘|❌|×)"
    r"(?!(?: (?:options|choices|answers|ones))?:\s*[(\[*\"']{0,3}[A-Z][)\].,*\"'])",
    re.IGNORECASE,
)
_AFFIRMED_AFTER = re.compile(
    r"[\s\"'”’)\]*_.:,…]{0,6}(?:"
    f"{_IS}{_ADVERB}"
    r"(?:correct|right|answer|accurate|appropriate|choice|option|solution|plausible|consistent|closest|suitable|"
    r"remaining|likely|best|one)\b|\(\s*(?:the )?(?:correct|right|best|final)\b|(?:✓|✔|✅|☑|←|<-)|it is\b|"
    r"[–—:-]\s*(?:correct|right|yes)\b|\s*wins\b|yes\b)",
    re.IGNORECASE,
)
_AFFIRMED_BEFORE = re.compile(
    r"(?:\bis|\bbe|\bit['’]s|\bthat['’]s|→|⇒|=>|->|\bchoos(?:e|ing)|\bchose|\bpick(?:ed|ing)?|\bselect(?:ed|ing)?|"
    r"\bgo(?:ing)?(?: ahead)? with|\bwent with|\bsettled? (?:on|for)|\bopt(?:ed)? for|\bvote (?:is )?for|\bconclude|"
    r"\bconclusion|\bso|\bthus|\bhence|\btherefore|\bleav(?:es?|ing)(?: us with| me with| only| just)?|"
    r"\bleft with(?: only)?|\bmark(?:ed|s)?|\bmatch(?:es)?|\bcorresponds? to|\bpoints? to|\bconsistent with|\bnamely|"
    r"\bguess(?: is)?|\banswer(?:ed)?|\bsay|\bnot [A-Z],? but|\b(?:to|in) favou?r(?: of)?|\bsupports?|\bno|\byes|"
    r"\bwait|\bactually|\brather|\bi mean|\bmake (?:that|it)|\bcorrection|\bonly|\bthen)[\s,:*_\"'“(\[]*(?:(?:that|the|"
    r"with|it (?:is|must be|should be)|it['’]s|answer|is|correct|right|best|final|most|likely|probably|clearly|"
    r"definitely|obviously|certainly|surely|thus|therefore|simply|just|option|choice|"
    r"letter|would be|must be|actually|my)[\s,:*_\"'“(\[]+)*$",
    re.IGNORECASE,
)
_UNREAL = re.compile(
    r"[\s\"'”’)\]*_…,]{0,6}(?:would|could|might|may)\b(?! be (?:the |my |a )?(?:correct|right|best|answer|most|only))",
    re.IGNORECASE,
)
_COLON_BEFORE = re.compile(r":[\s\"'“(\[*_]*$")
PREDICATE_AFTER = re.compile(
    r"[\s\"'”’)\]*_…]{0,6}(?:is|are|was|were|has|have|had|does|did|can|will|needs|would|could|might|may)\b"
)
"""A verb of which a label is the subject."""
_ASKED = re.compile(r"[\s\"'”’)\]*_…]{0,6}\?")
_OTHER_WORDS = re.compile(
    r"\b(?:as well as|and|or|to|both|either|also|maybe|possibly|perhaps|even|all|the|of|options?|choices?|"
    r"answers?|letters?|labels?)\b|[\s()\[\]{}*_`\"'“”.,;:?|/&+=–—-]+",
    re.IGNORECASE,
)
_EXPLAINED = re.compile(
    r",?\s*\b(?:because|since|as (?:it|they|he|she|this|that|the)|so that|given that|due to|whereas|while|unlike|"
    r"(?:the )?opposite (?:of|to)|in contrast to|compared (?:to|with))\b"
    r"|,\s+(?:which|who|where|meaning|i\.e\.)",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?:(?<=[^\W\d_]{2})|(?<=[…)\]%\d]))[.!?]\s+")
_HEDGE = re.compile(r"\b(?:or|also|possibly|maybe|perhaps|alternatively|equally|might|could)\b", re.IGNORECASE)
_REFUTED = re.compile(
    r"[^,;.\n]*?\b(?:wrong|incorrect|false|not(?! (?:sure|certain))|no|never|cannot|contradicts?|fails?|ruled out|"
    r"excluded|eliminated|rejected|impossible)\b",
    re.IGNORECASE,
)
_REFUTED_BEFORE = re.compile(
    r"\b(?:eliminat|exclud|reject|discard|wrong|incorrect|false|rul(?:ed|ing) out)\w*"
    r"\s*(?:options?|choices?|answers?)?\s*:[\s(\[*_]*$",
    re.IGNORECASE,
)
_OFFERS = re.compile(
    r"\b(?:also|too|possible|possibly|plausible|equally|well|maybe|perhaps|might|could)\b", re.IGNORECASE
)
_JOINED_BEFORE = re.compile(r"(?:\b(?:or|and|also|either|both)|[,;/&|])\s*$", re.IGNORECASE)
_ALSO_RIGHT = re.compile(
    r"[\W_]{0,6}(?:is|are|works?|fits?|(?:would|could|might|may)(?: also)? be)\s+(?:(?:also|equally|just as|likewise)\b"
    r"(?!\s+(?:not|wrong|incorrect|false))|(?:\w+\s+){0,2}(?:too|as well|possible)\b)",
    re.IGNORECASE,
)
_CLAUSE = re.compile(
    r"\b(?:is|are|was|were|would|can|cannot|has|have|does|do|did|will|fails?|describes?|refers?|means?|contradicts?|not)\b",
    re.IGNORECASE,
)
MAX_GROUPS = 100
"""The maximum number of groups of a text that are examined; the last ones are."""


class LetterGroup(NamedTuple):
    """Letters that a text names together ("A", "A or B"), and the clause's stance on them."""

    letters: str
    start: int
    end: int
    stance: Stance


def find_letter_groups(text: str, choice_letters: str, *, ignore_context: bool = False) -> list[LetterGroup]:
    """Return the groups of these letters in `text`, in its order; at most the last `MAX_GROUPS`.

    A letter without brackets, quotes or emphasis counts only between words that a choice's letter can stand between: "D
    is right" names a choice, "D glucose is" and "vitamin D is" do not. The rule is the same for the article A and the
    pronoun I. `ignore_context` drops the condition on the word before.
    """
    made: list[list[tuple[str, int, int]]] = []
    for letter, start, end in _find_labels(text, choice_letters, ignore_context):
        if made and _JOIN.fullmatch(text, made[-1][-1][2], start):
            made[-1].append((letter, start, end))
        else:
            made.append([(letter, start, end)])
    return [_make_group(text, members) for members in made[-MAX_GROUPS:]]


def offers_several_labels(text: str, choice_letters: str) -> bool:
    """Return whether an answer offers more than one label: "(A) or (B)", "A/B", "A B", "(A) Up (B) Down".

    A label is not offered if the answer denies it, or if only its reason or a later sentence of explanation names it.
    """
    letters = _OTHER_WORDS.sub(" ", text).split()
    if all(len(letter) == 1 for letter in letters):
        return len({letter.upper() for letter in letters} & {*choice_letters}) > 1
    reason = _EXPLAINED.search(text)
    first, *later = _SENTENCE.split(text[: reason.start()] if reason else text)
    stated = _find_offered_letters(first, choice_letters)
    for sentence in later:
        begins = _LABEL.match(sentence.lstrip()) is not None and not _CLAUSE.search(sentence)
        if begins or _HEDGE.search(sentence):
            stated |= _find_offered_letters(sentence, choice_letters)
    return len(stated) > 1


def _find_offered_letters(sentence: str, offered: str) -> set[str]:
    """Return the letters that a sentence names as labels and does not deny."""
    found = find_letter_groups(sentence, offered, ignore_context=True)
    ends = [*(group.start for group in found[1:]), len(sentence)]
    found = [
        group
        for number, (group, end) in enumerate(zip(found, ends, strict=False))
        if not number
        or not (_REFUTED.match(sentence[group.end : end]) or _REFUTED_BEFORE.search(sentence[: group.start]))
    ]
    return {
        letter
        for number, group in enumerate(found)
        if group.stance != "denied"
        and (not number or (_is_label(sentence, group) and not _is_explained(sentence, group)))
        for letter in group.letters
    }


def _is_explained(sentence: str, group: LetterGroup) -> bool:
    """Return whether a clause about the labels follows them that does not offer them: "(B) would need a surplus"."""
    behind = sentence[group.end : group.end + 60].lstrip(" )]*_")
    return group.stance != "affirmed" and _CLAUSE.match(behind) is not None and not _OFFERS.search(behind)


def _is_label(sentence: str, group: LetterGroup) -> bool:
    """Return whether a later group is marked as a label or joined to others, and no name such as "firm B"."""
    if len(group.letters) > 1 or not sentence[group.start].isalpha() or len(sentence[group.start : group.end]) > 2:
        return True
    is_item = re.match(r"[).:]\s*\S", sentence[group.end :]) is not None
    is_joined = _JOINED_BEFORE.search(sentence[: group.start]) is not None
    return is_item or is_joined or _ALSO_RIGHT.match(sentence, group.end) is not None


def _find_labels(text: str, offered: str, everywhere: bool) -> Iterator[tuple[str, int, int]]:
    for match in _LABEL.finditer(text):
        kind = match.lastgroup or ""
        kind = "quoted" if kind == "quote" else kind
        letter = match[kind].upper()
        if letter not in offered:
            continue
        if (
            kind == "bare"
            and not everywhere
            and not _BEFORE_BARE.search(text[max(0, match.start() - 24) : match.start()])
        ):
            continue
        yield letter, match.start(), match.end()


def _make_group(text: str, members: list[tuple[str, int, int]]) -> LetterGroup:
    letters = "".join(dict.fromkeys(letter for letter, _, _ in members))
    start, end = members[0][1], members[-1][2]
    return LetterGroup(letters, start, end, _find_stance(extract_clause_before(text, start), text[end : end + 120]))


def _find_stance(before: str, after: str) -> Stance:
    if _DENIED_BEFORE.search(before) or _DENIED_AFTER.match(after):
        return "denied"
    if _ASKED.match(after):
        return "asked"
    if is_hypothetical(before) or _UNREAL.match(after):
        return "named"
    if _AFFIRMED_AFTER.match(after) or _AFFIRMED_BEFORE.search(before):
        return "affirmed"
    if _COLON_BEFORE.search(before) and not PREDICATE_AFTER.match(after):
        return "affirmed"
    return "named"
