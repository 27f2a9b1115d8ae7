"""What the stages after GRPO add to its step: parts of the pool on offer (adaptive), and rounds (recursive).

What belongs here: the draw of a question's workers; two rounds of one question, and their rewards. What does not: what
every stage does.
"""
