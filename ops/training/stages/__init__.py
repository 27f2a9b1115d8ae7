"""What the later stages add to a GRPO step: subsets of the workers (adaptive) and two rounds per question (recursive).

This package draws the workers of a question, and executes and rewards two rounds of one question. What all stages share
is in the other packages of `ops.training`.
"""
