"""OpenAI's two routes as data: reading a request, and writing a response, its stream of events, an error.

What belongs here: JSON in, JSON out. What does not: HTTP (`ops.serving.http`).
"""
