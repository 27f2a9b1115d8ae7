"""Benchmarks, the sources of problems: one file per benchmark in `catalogue`, which `registry` maps to its name.

This package loads problems (embedded, from files, or from the Hugging Face hub) and checks their rows. Grading belongs
in `ops.grading`, and the choice of training problems in `ops.curation`.
"""
