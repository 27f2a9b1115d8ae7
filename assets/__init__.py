"""Define the assets: one module for each stage of the pipeline, in which each asset calls one operation of `ops`.

What belongs here: dependencies between assets, partitions, checks and metadata. What does not: how an operation works
(`ops`) and when it runs (`pipelines`).
"""
