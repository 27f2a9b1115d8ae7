"""The questions that a version was trained on: whether a new question is like them.

The measure is the share of a question's pairs of neighbouring words that occur in some question of the training mix.
Case is ignored, all numbers count as the same word, and the beginning and the end of a question count as words.
docs/serving.md compares it with other measures.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ops.core.atomic import write_text
from ops.core.errors import DataError

FILE = "scope.json"
"""In the folder of a released version's policy."""
PASSING = 0.95
"""Share of the in-domain test questions that have at least `Scope.least`."""
FEWEST = 20
"""Test questions below which no threshold is set."""
WORD = re.compile(r"[^\W\d_]+|\d+(?:[.,]\d+)*|[^\w\s]")


@dataclass(frozen=True)
class Scope:
    """What a version was trained on."""

    least: float
    """The lowest share of known pairs, in [0, 1], with which a question counts as like the training mix."""
    known: frozenset[int]
    """Hashes of the pairs of neighbouring words in the training mix, from which no question can be read."""

    @classmethod
    def measure(cls, mix: Iterable[str], tests: Iterable[str]) -> Scope | None:
        """Set the threshold for a training mix on those of the in-domain test questions that `is_calibrating` chooses;
        None if they are fewer than `FEWEST`."""
        known = frozenset(pair for question in mix for pair in pairs(question))
        shares = sorted(cls(0.0, known).share(question) for question in tests if is_calibrating(question))
        return cls(shares[int((1 - PASSING) * len(shares))], known) if len(shares) >= FEWEST else None

    def share(self, question: str) -> float:
        """Return the share of a question's pairs of neighbouring words that the training mix has, in [0, 1]."""
        asked = pairs(question)
        return sum(pair in self.known for pair in asked) / len(asked)

    def notice(self, question: str) -> str:
        """Return the sentence about a question that lies outside of what the version was trained on; "" for others."""
        share = self.share(question)
        if share >= self.least:
            return ""
        return (
            "This question lies outside of what this version was trained on, so its answer may well be wrong: "
            f"{share:.0%} of the question's word pairs occur in the training questions, while {PASSING:.0%} of the "
            f"test questions reach {self.least:.0%}."
        )

    def write(self, folder: Path) -> None:
        """Write the scope beside the weights of the policy in `folder`."""
        write_text(folder / FILE, json.dumps({"least": self.least, "known": sorted(self.known)}))

    @classmethod
    def read(cls, folder: Path) -> Scope | None:
        """Return the scope of the policy in `folder`; None if it was released without one. Raises `DataError`."""
        file = folder / FILE
        if not file.is_file():
            return None
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
            return cls(float(values["least"]), frozenset(map(int, values["known"])))
        except (OSError, ValueError, KeyError, TypeError) as error:
            problem = f"is not a valid scope ({type(error).__name__}: {error})"
            raise DataError(file, "", problem, "Go back with `podium rollback`, or train the version again") from None


def pairs(question: str) -> Collection[int]:
    """Return the hashes of a question's pairs of neighbouring words, with repetitions."""
    words = ["0" if word[0].isdigit() else word for word in WORD.findall(question.lower())]
    texts = (f"{first} {second}" for first, second in pairwise(["", *words, ""]))
    return [zlib.crc32(text.encode("utf-8", "surrogatepass")) for text in texts]


def is_calibrating(question: str) -> bool:
    """Return whether a test question helps to set the threshold. The other half measures how well it works."""
    return hashlib.sha256(question.encode("utf-8", "surrogatepass")).digest()[0] % 2 == 0
