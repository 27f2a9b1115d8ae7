"""What an asset or a DVC stage calls: read files, do one operation, write files.

What belongs here: one function a stage. What does not: the operations themselves, which are lower floors', and
Dagster, which is `assets`'.
"""
