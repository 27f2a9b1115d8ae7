"""Supervised fine-tuning (SFT) before GRPO: examples, the base policy, and the check that GRPO may start from it.

What belongs here: the choice of workflows to try and teach, tokenizer and weights of a new policy. Not here: rewards.
"""
