"""Find the answer inside a short answer that was given as a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_SENTENCE = 400
"""Maximum length in characters of an answer that is read as a sentence."""
DENIAL = re.compile(r"\b(?:not|never|no|neither|isn't|cannot|wrong)\b", re.I)
_HEDGED = re.compile(
    r"\b(?:wait|actually|correction|or|maybe|perhaps|either|neither|nor|both|not sure|unsure|unclear|however|but|"
    r"rather|instead|except)\b|\bno,|\?",
    re.IGNORECASE,
)
_TAILS = (
    re.compile(
        r",?\s+(?:because|since|as (?:it|they|he|she|this|the)|so that|given that|due to)\b|,\s+(?:which|who|where|"
        r"meaning|i\.e\.)\b",
        re.I,
    ),
    re.compile(r"[*\"”)]*\.[*\"”)]*\s+(?=[A-Z*(])"),
    re.compile(r"\s+\((?!not\b|and\b)[^()]*\)\s*$"),
    re.compile(r"(?<=[^\W\d_]{2})\s+[–—-]\s+(?=(?:an?|the|this|that|it|its|which|as|in|because|since)\b)", re.I),
)
_STOP = _TAILS[1]
_CONDITION = re.compile(r"\b(?:if|unless|otherwise|would|could|might|suppos\w+)\b", re.IGNORECASE)
_LINKED = re.compile(
    r"\b(?:is|was|are|were|be|equals?|called|named|becomes?|known as)[\s:]+"
    r"(?:(?:therefore|thus|hence|then|simply|clearly)\s+)?(?=\S)",
    re.IGNORECASE,
)


def list_shorter_readings(answer: str) -> Iterator[str]:
    """Yield shorter readings of an answer that is a sentence: without its reason, an aside or its introduction.

    There are none if the sentence denies, hedges or retracts its statement. Of several sentences, only the first that
    states something is read, and sentences about another case are ignored.
    """
    if len(answer) > MAX_SENTENCE or _HEDGED.search(answer):
        return
    short = [answer[: match.start()] for pattern in _TAILS for match in [pattern.search(answer)] if match]
    yield from short
    for sentence in (answer, *short):
        if DENIAL.search(sentence):
            continue
        links = list(_LINKED.finditer(sentence))[:4]
        for match in links:
            before = sentence[: match.start()]
            if _STOP.search(before, links[0].end()) or _CONDITION.search(_STOP.split(before)[-1]):
                break
            yield sentence[match.end() :]
