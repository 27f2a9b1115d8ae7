"""Train by GRPO from a run's plan to its policy: `python -m ops.training.grpo --run FOLDER`.

This package assembles a run of any stage: its trainer, TRL's configuration, its questions and its curve. The parts that
it assembles are in other packages and do not depend on each other.
"""
