"""The server: who may ask, how many at once, routes, metrics, and its end.

What belongs here: HTTP. What does not: answering (`ops.serving`), the JSON of OpenAI's routes (`ops.serving.openai`).
"""
