"""Texts as vectors, without a download: TF-IDF of words and characters, and its leading directions.

It sees which words two texts share, not what they mean. A recipe's language model could embed them better: not done.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ops.core.problem import Problem, worker_prompt

Vectors = NDArray[np.float64]
"""A text a row."""
DIMENSIONS = 128
_DIGITS = re.compile(r"\d+")


def tfidf() -> Any:
    """scikit-learn's vectorizer of words (one and two) and characters (two to four, within a word), to be fitted."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_union

    words = TfidfVectorizer(token_pattern=r"(?u)\w+", ngram_range=(1, 2), sublinear_tf=True)
    return make_union(words, TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True))


@dataclass(frozen=True)
class QuestionEmbedding:
    """Questions → unit vectors of at most `DIMENSIONS`, by what the training questions showed of language.

    A number counts as a number, whichever it is: that is what questions of a kind share.
    """

    _vectorizer: Any
    _directions: Any

    @classmethod
    def fit(cls, problems: Sequence[Problem], seed: int) -> Self:
        """Truncated singular values of the TF-IDF matrix (latent semantic analysis); the same seed, the same vectors.

        Raises `ValueError` where there is no problem.
        """
        from sklearn.decomposition import TruncatedSVD

        if not problems:
            raise ValueError("no training problems to embed: curate a mix first")
        vectorizer = tfidf()
        features = vectorizer.fit_transform(_texts(problems))
        directions = TruncatedSVD(min(DIMENSIONS, *features.shape), random_state=seed)
        return cls(vectorizer, directions.fit(features))

    def of(self, problems: Sequence[Problem]) -> Vectors:
        """Problems × dimensions; zeros for a question that shares nothing with the training questions."""
        from sklearn.preprocessing import normalize

        features = self._vectorizer.transform(_texts(problems))
        return np.asarray(normalize(self._directions.transform(features)), dtype=float)


def _texts(problems: Sequence[Problem]) -> list[str]:
    return [_DIGITS.sub("0", worker_prompt(problem)) for problem in problems]
