"""Spending: the record of costs, and the guarantee that no cap is exceeded.

What belongs here: reservations, their settlement, the books, formatting of amounts. What does not: prices of a worker
(`ops.config`), and estimates of future costs (`ops.planning.estimate`).
"""
