"""GRPO from a run's plan to its policy: `python -m ops.training.grpo --run FOLDER`.

What belongs here: the assembly of a run for every stage: its trainer, TRL's configuration, its questions, its curve.
What does not: the parts, which do not depend on each other.
"""
