"""Supervised fine-tuning (SFT) before GRPO: the examples, the base policy, and the check that GRPO may start from it.

This package chooses the workflows that are tried and taught, and makes the tokenizer and weights of a new policy.
Rewards are in `ops.training.rewards`.
"""
