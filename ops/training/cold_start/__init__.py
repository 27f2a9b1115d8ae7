"""Supervised learning before GRPO: lessons, the policy that they make, and whether GRPO may start from it.

What belongs here: which workflows are tried and taught, tokenizer and weights of a new policy. What does not: rewards.
"""
