"""How good a Conductor is, how sure we are of it, what it costs, and against whom.

What belongs here: scoring systems on test questions, statistics, reports. What does not: the gate that acts on
them (`ops.release`).
"""
