"""Decide whether a question is similar to those on which a version was trained.

The measure is the share of the question's pairs of neighbouring words that occur in a question of the training mix.
Case is ignored, all numbers count as the same word, and the beginning and the end of a question count as words.
docs/serving.md compares the measure with others.
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
"""The file in the folder of a released version's policy."""
PASSING = 0.95
"""The share of the in-domain test questions that reach the threshold `Scope.least`."""
FEWEST = 20
"""With fewer test questions than this, no threshold is set."""
WORD = re.compile(r"[^\W\d_]+|\d+(?:[.,]\d+)*|[^\w\s]")


@dataclass(frozen=True)
class Scope:
    """What a version was trained on."""

    least: float
    """A question is similar to the training mix if it has at least this share of known pairs, in [0, 1]."""
    known: frozenset[int]
    """The hashes of the pairs of neighbouring words in the training mix. No question can be read from them."""

    @classmethod
    def measure(cls, mix: Iterable[str], tests: Iterable[str]) -> Scope | None:
        """Set the threshold for a training mix from the in-domain test questions that `is_calibrating` chooses; None if
        there are fewer than `FEWEST`."""
        known = frozenset(pair for question in mix for pair in pairs(question))
        shares = sorted(cls(0.0, known).share(question) for question in tests if is_calibrating(question))
        return cls(shares[int((1 - PASSING) * len(shares))], known) if len(shares) >= FEWEST else None

    def share(self, question: str) -> float:
        """Return the share of a question's pairs of neighbouring words that the training mix has, in [0, 1]."""
        asked = pairs(question)
        return sum(pair in self.known for pair in asked) / len(asked)

    def notice(self, question: str) -> str:
        """Return a sentence about a question that lies outside of the training; empty for any other question."""
        share = self.share(question)
        if share >= self.least:
            return ""
        return (
            "This question lies outside of what this version was trained on, so its answer may well be wrong: "
            f"{share:.0%} of the question's word pairs occur in the training questions, while {PASSING:.0%} of the "
            f"test questions reach {self.least:.0%}."
        )

    def write(self, folder: Path) -> None:
        """Write the scope into the folder of the policy."""
        write_text(folder / FILE, json.dumps({"least": self.least, "known": sorted(self.known)}))

    @classmethod
    def read(cls, folder: Path) -> Scope | None:
        """Read the scope of the policy in `folder`; None if it was released without one. Raises `DataError`."""
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
    """Return whether a test question helps to set the threshold. The other half of the questions measures how well the
    threshold works."""
    return hashlib.sha256(question.encode("utf-8", "surrogatepass")).digest()[0] % 2 == 0
