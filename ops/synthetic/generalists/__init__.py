"""The generalist workers, which answer any question alone and make errors that depend on their skills.

A generalist is a set of bounded algorithms that read a `Task`, and a probability with which each of their steps goes
wrong. It does not know how a question was generated. Exact tools belong to `ops.synthetic.tools`.

All generalists share one procedure (the module `procedure`) and differ in their skills (`SKILLS`). The possible errors
are the same for all of them, but not their frequency.
"""

from __future__ import annotations

from ops.synthetic.generalists.procedure import GeneralistResponse, respond
from ops.synthetic.generalists.skills import SKILLS, Skill

__all__ = ["SKILLS", "GeneralistResponse", "Skill", "respond"]
