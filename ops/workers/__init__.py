"""The pool of worker models in use: one way to ask a worker, within its limits and the budget.

What belongs here: calls, what they meet (limits, failures, breakers), what they are billed at. What does not:
storing responses (`ops.cache`), money (`ops.spending`), asking many problems (`ops.precaching`).
"""
