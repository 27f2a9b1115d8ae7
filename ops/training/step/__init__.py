"""One step of GRPO with TRL.

What belongs here: the choice of questions, generation, batching, the loss, and the checks of a step. What does not:
rewards, and the additions of the later stages.
"""
