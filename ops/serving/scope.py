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

SCOPE_FILE = "scope.json"
"""The file in the folder of a released version's policy."""
PASSING_SHARE = 0.95
"""The share of the in-domain test questions that reach the threshold `TrainingScope.min_known_share`."""
MIN_TEST_QUESTIONS = 20
"""With fewer test questions than this, no threshold is set."""
WORD_PATTERN = re.compile(r"[^\W\d_]+|\d+(?:[.,]\d+)*|[^\w\s]")


@dataclass(frozen=True)
class TrainingScope:
    """What a version was trained on."""

    min_known_share: float
    """A question is similar to the training mix if it has at least this share of known pairs, in [0, 1]."""
    known_pairs: frozenset[int]
    """The hashes of the pairs of neighbouring words in the training mix. No question can be read from them."""

    @classmethod
    def measure(cls, mix: Iterable[str], tests: Iterable[str]) -> TrainingScope | None:
        """Set the threshold for a training mix from the in-domain test questions that `is_calibration_question`
        chooses; None if there are fewer than `MIN_TEST_QUESTIONS`."""
        known = frozenset(pair for question in mix for pair in hash_word_pairs(question))
        shares = sorted(
            cls(0.0, known).compute_known_share(question) for question in tests if is_calibration_question(question)
        )
        return cls(shares[int((1 - PASSING_SHARE) * len(shares))], known) if len(shares) >= MIN_TEST_QUESTIONS else None

    def compute_known_share(self, question: str) -> float:
        """Return the share of a question's pairs of neighbouring words that the training mix has, in [0, 1]."""
        asked = hash_word_pairs(question)
        return sum(pair in self.known_pairs for pair in asked) / len(asked)

    def write_notice(self, question: str) -> str:
        """Return a sentence about a question that lies outside of the training; empty for any other question."""
        share = self.compute_known_share(question)
        if share >= self.min_known_share:
            return ""
        return (
            "This question lies outside of what this version was trained on, so its answer may well be wrong: "
            f"{share:.0%} of the question's word pairs occur in the training questions, while {PASSING_SHARE:.0%} of "
            f"the test questions reach {self.min_known_share:.0%}."
        )

    def write(self, folder: Path) -> None:
        """Write the scope into the folder of the policy."""
        write_text(folder / SCOPE_FILE, json.dumps({"least": self.min_known_share, "known": sorted(self.known_pairs)}))

    @classmethod
    def read(cls, folder: Path) -> TrainingScope | None:
        """Read the scope of the policy in `folder`; None if it was released without one. Raises `DataError`."""
        file = folder / SCOPE_FILE
        if not file.is_file():
            return None
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
            return cls(float(values["least"]), frozenset(map(int, values["known"])))
        except (OSError, ValueError, KeyError, TypeError) as error:
            problem = f"is not a valid scope ({type(error).__name__}: {error})"
            raise DataError(file, "", problem, "Go back with `podium rollback`, or train the version again") from None


def hash_word_pairs(question: str) -> Collection[int]:
    """Return the hashes of a question's pairs of neighbouring words, with repetitions."""
    words = ["0" if word[0].isdigit() else word for word in WORD_PATTERN.findall(question.lower())]
    texts = (f"{first} {second}" for first, second in pairwise(["", *words, ""]))
    return [zlib.crc32(text.encode("utf-8", "surrogatepass")) for text in texts]


def is_calibration_question(question: str) -> bool:
    """Return whether a test question helps to set the threshold. The other half of the questions measures how well the
    threshold works."""
    return hashlib.sha256(question.encode("utf-8", "surrogatepass")).digest()[0] % 2 == 0
