"""Text embeddings without a download: TF-IDF of words and characters, reduced by truncated SVD.

The vectors compare words, not meaning; a language model would embed texts better.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ops.core.problem import Problem
from ops.grading import worker_prompt

Vectors = NDArray[np.float64]
"""An array with one row per text."""
DIMENSIONS = 128
_DIGITS = re.compile(r"\d+")


def make_vectorizer() -> Any:
    """Return an unfitted scikit-learn vectorizer of word 1- and 2-grams and of character 2- to 4-grams within words."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_union

    words = TfidfVectorizer(token_pattern=r"(?u)\w+", ngram_range=(1, 2), sublinear_tf=True)
    return make_union(words, TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True))


@dataclass(frozen=True)
class QuestionEmbedding:
    """An embedding of questions as unit vectors of at most `DIMENSIONS`, fitted on the training questions.

    Every number is replaced by 0, so that questions of one kind with different numbers are similar.
    """

    _vectorizer: Any
    _directions: Any

    @classmethod
    def fit(cls, problems: Sequence[Problem], seed: int) -> Self:
        """Fit a truncated SVD of the TF-IDF matrix (latent semantic analysis); reproducible for a seed.

        Raises `ValueError` without problems.
        """
        from sklearn.decomposition import TruncatedSVD

        if not problems:
            raise ValueError("no training problems to embed: curate a mix first")
        vectorizer = make_vectorizer()
        features = vectorizer.fit_transform(_texts(problems))
        directions = TruncatedSVD(min(DIMENSIONS, *features.shape), random_state=seed)
        return cls(vectorizer, directions.fit(features))

    def embed(self, problems: Sequence[Problem]) -> Vectors:
        """Return vectors of shape problems × dimensions; zeros for a question without any known feature."""
        from sklearn.preprocessing import normalize

        features = self._vectorizer.transform(_texts(problems))
        return np.asarray(normalize(self._directions.transform(features)), dtype=float)


def _texts(problems: Sequence[Problem]) -> list[str]:
    return [_DIGITS.sub("0", worker_prompt(problem)) for problem in problems]
