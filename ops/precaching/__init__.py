"""Measure the workers alone: their answers to every shortlisted problem, profiles, estimates and rehearsals.

This package sends many problems to workers and summarises the answers. Single calls belong in `ops.workers`, the
selection of problems by their answers in `ops.curation`.
"""
