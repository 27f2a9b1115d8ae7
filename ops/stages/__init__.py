"""Functions for assets and DVC stages: read files, do one operation, write files.

What belongs here: one function a stage. What does not: the operations themselves (lower packages), and Dagster
(`assets`).
"""
