"""What a step's rollouts earn.

What belongs here: the reward as TRL calls it, its terms, the samples of workers that it draws on, waiting for workers
that are away, and what all that showed. What does not: how the policy writes and learns.
"""
