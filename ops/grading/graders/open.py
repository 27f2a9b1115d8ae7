"""A user's question in any form, whose answers are not graded."""

from __future__ import annotations

from ops.grading.grader import Grader

GRADER = Grader("open", needs_gold=False)
