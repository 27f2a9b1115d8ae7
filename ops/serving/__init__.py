"""Serving the champion: many requests at once, each answered even where some workers fail.

What belongs here: request options, micro-batched writing of workflows, fallbacks when workers fail, changing the
version without dropping a request, OpenAI's and MLflow's routes. What does not: which version is champion, and where
traces are stored (`ops.release`).
"""
