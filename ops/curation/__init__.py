"""Curation chooses the training mix from the candidates: decontamination, diversity, difficulty.

This package decides which problems are trained on, and why. Loading them belongs in `ops.benchmarks`, calling workers
in `ops.workers`, and the Great Expectations checks in `ops.quality`.
"""
