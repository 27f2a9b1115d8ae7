"""Reward terms: one file each, named as recipes name it, that holds one `@reward_term` function.

What belongs here: one number read from an executed rollout. What does not: its weight (`grpo.reward_terms` of the
recipe). Nothing else names a term: `ops.training.rewards.reward_term.TERMS` lists this folder.
"""
