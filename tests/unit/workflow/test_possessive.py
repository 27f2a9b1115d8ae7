"""Patterns for Python versions with faulty possessive quantifiers of
groups: the corpus is parsed with these patterns.
"""

from __future__ import annotations

import re

import pytest

from ops.core.cpython import atomic


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"a++[)(]*+", r"a++[)(]*+"),
        (r"(?:a|b)*+c", r"(?>(?:a|b)*)c"),
        (r"x(?:a(?P<y>b)?+)++", r"x(?>(?:a(?>(?P<y>b)?))+)"),
        (r"\)*+(?:\(|[^])])?+", r"\)*+(?>(?:\(|[^])])?)"),
    ],
)
def test_only_groups_become_atomic(pattern: str, expected: str) -> None:
    assert atomic(pattern) == expected
    re.compile(expected)
