"""A training run as a folder and as processes.

What belongs here: the plan and the result, checkpoints and what a full disk does to them, how the ranks are started and
asked to stop, what is said when they fail, where the curve is tracked. What does not: what a step does.
"""
