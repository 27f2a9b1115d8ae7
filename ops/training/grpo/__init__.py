"""GRPO from a run's plan to its policy: `python -m ops.training.grpo --run FOLDER`.

What belongs here: what puts a run together, of every stage: its trainer, TRL's configuration, its questions, its curve.
What does not: the parts, which know nothing of each other.
"""
