"""Benchmarks, the sources of problems: one file per benchmark in `catalogue`; `registry` maps names to them.

What belongs here: loading (embedded, file, hub), checking rows. What does not: grading (`ops.grading`), choosing
problems to train on (`ops.curation`).
"""
