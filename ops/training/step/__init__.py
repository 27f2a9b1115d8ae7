"""One step of GRPO, by TRL.

What belongs here: which questions it asks and asks again, how completions are written and read, what the loss leaves
out, and what a step must not do. What does not: who is asked for rewards, and what a stage adds to a step.
"""
