"""Curation, from candidates to the training mix: decontamination, diversity, difficulty.

What belongs here: which problems are trained on, and why. What does not: loading them (`ops.benchmarks`), calling
workers (`ops.workers`), the Great Expectations checks (`ops.quality`).
"""
