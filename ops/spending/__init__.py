"""Money: what was spent on workers, and the promise that no cap is passed.

What belongs here: reservations, settling them, the books. What does not: prices of a worker (`ops.config`),
what is still to come (`ops.precaching.estimate`).
"""
