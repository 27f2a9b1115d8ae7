"""Load the Conductor's policy, generate completions with it, and turn a completion into a reward.

This package also has the policy's card and the rollout that training, evaluation and serving share. Changes of weights
belong to `ops.training`, and statistics to `ops.evaluation`.
"""
