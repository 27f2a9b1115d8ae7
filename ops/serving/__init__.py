"""Serve the champion: concurrent requests, each answered even if some workers fail.

What belongs here: request options, batched generation of workflows, fallbacks when workers fail, version changes
without dropped requests, OpenAI's and MLflow's routes. What does not: the choice of the champion, and the storage of
traces (`ops.release`).
"""
