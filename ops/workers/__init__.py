"""Call the worker models of a pool within their limits and the budget.

What belongs here: calls, their limits, failures and circuit breakers, and their cost. What does not: storing responses
(`ops.store`), the ledger (`ops.spending`), sending many problems (`ops.precaching`).
"""
