"""The generalist workers: they answer any question by themselves, and err as their skills let them.

What belongs here: bounded algorithms that read a `Task`, and the chance with which each of their steps goes wrong.
What does not: exact tools (`ops.synthetic.tools`), and anything that knows how a question was made.

One way of thinking (`thought`) with three sets of skills (`SKILLS`): what a generalist may do wrong is the same for
all, how often is not.
"""

from __future__ import annotations

from ops.synthetic.generalists.mind import SKILLS, Skill
from ops.synthetic.generalists.thought import Thought, think

__all__ = ["SKILLS", "Skill", "Thought", "think"]
