"""Measure the workers by themselves: collect their answers to every shortlisted problem, and summarise them.

This package sends many problems to workers, and computes profiles, estimates and rehearsals from the answers. Single
calls belong in `ops.workers`, and the selection of problems by their answers in `ops.curation`.
"""
