"""One step of GRPO with TRL: the choice of questions, generation, batching, the loss, and the checks of a step.

Rewards are in `ops.training.rewards`, and the additions of the later stages in `ops.training.stages`.
"""
