"""Money: what was spent on workers, and the promise that no cap is passed.

What belongs here: reservations, settling them, the books, how an amount is written.
What does not: prices of a worker (`ops.config`), what is still to come (`ops.planning.estimate`).
"""
