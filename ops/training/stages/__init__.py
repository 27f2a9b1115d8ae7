"""The additions of the later stages to a GRPO step: worker subsets (adaptive), and rounds (recursive).

What belongs here: the draw of a question's workers; two rounds of one question, and their rewards. What does not: the
parts common to all stages.
"""
