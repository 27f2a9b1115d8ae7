"""The policy, and the evaluation of its completions up to the reward.

What belongs here: loading and generating, the policy's card, and the rollout that training, evaluation and serving
share. What does not: changing weights (`ops.training`), statistics (`ops.evaluation`).
"""
