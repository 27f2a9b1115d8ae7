"""The generalist workers: they answer any question alone, with errors that depend on their skills.

What belongs here: bounded algorithms that read a `Task`, and the probability with which each of their steps goes wrong.
What does not: exact tools (`ops.synthetic.tools`), and knowledge of how a question was made.

All share one procedure (`thought`) with three sets of skills (`SKILLS`): the possible errors are the same for all,
their frequency is not.
"""

from __future__ import annotations

from ops.synthetic.generalists.mind import SKILLS, Skill
from ops.synthetic.generalists.thought import GeneralistResponse, respond

__all__ = ["SKILLS", "GeneralistResponse", "Skill", "respond"]
