"""A missing requirement of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ops.planning.plan import Plan


class Missing(NamedTuple):
    """A missing requirement, the reason for it, and the remedy."""

    what: str
    why: str
    remedy: str
    refuses: bool = True
    """Whether it prevents a start; False: a note."""

    def __str__(self) -> str:
        return f"{self.what}: {self.why}. {self.remedy}"


Requirement = Callable[[Plan], Iterator[Missing]]
"""A check that yields the missing requirements of a plan in one respect."""
