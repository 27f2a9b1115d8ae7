"""WHAT EXISTS: one module for each stage of the lifecycle, each asset a thin call of one operation of `ops`.

What belongs here: which asset depends on which, its partitions, its checks, and the
metadata that a person sees. What does not: how anything is done (`ops`) and when
it happens (`pipelines`).
"""
