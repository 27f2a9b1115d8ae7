"""A user's question in any form, which no grader judges."""

from __future__ import annotations

from ops.grading.grader import Grader

GRADER = Grader("open", needs_gold=False)
