"""HOW the line works: plain typed functions and classes, free of Dagster.

`assets` and `pipelines` import from here; nothing here imports from them.
"""
