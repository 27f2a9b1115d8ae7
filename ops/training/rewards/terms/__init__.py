"""Reward terms: one file per term, named as in recipes, with one `@reward_term` function.

What belongs here: one number of an executed rollout. What does not: its weight (`grpo.reward_terms` of the recipe).
`ops.training.rewards.reward_term.TERMS` lists this folder; no other code names a term.
"""
