"""The stages of a run: each function reads files, calls one operation and writes files.

Dagster's assets, DVC's stages and the commands call these functions. The operations themselves belong in lower
packages, and Dagster code belongs in `assets`.
"""
