"""The HTTP server: access, limits of connections and requests, routes, metrics, shutdown.

What belongs here: HTTP. What does not: answering (`ops.serving`), the JSON of OpenAI's routes (`ops.serving.openai`).
"""
