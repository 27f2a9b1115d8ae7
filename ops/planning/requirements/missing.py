"""One entry of what a plan lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ops.planning.plan import Plan


class Missing(NamedTuple):
    """One thing that is missing: why it is needed, and what to do."""

    what: str
    why: str
    remedy: str
    refuses: bool = True
    """False: worth knowing, and no reason to stop."""

    def __str__(self) -> str:
        return f"{self.what}: {self.why}. {self.remedy}"


Requirement = Callable[[Plan], Iterator[Missing]]
"""Yields what a plan lacks in one respect."""
