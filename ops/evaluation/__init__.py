"""Evaluation of a Conductor: its accuracy, the uncertainty of that accuracy, its cost, and the systems beside it.

What belongs here: scoring systems on test questions, statistics, reports. What does not: the promotion gate that
uses the scores (`ops.release`).
"""
