"""The rewards of a step's rollouts.

What belongs here: the reward function for TRL, its terms, the choice of worker samples, waiting for unreachable
workers, and statistics of these. What does not: how the policy generates and learns.
"""
