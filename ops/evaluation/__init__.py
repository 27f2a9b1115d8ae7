"""How good a Conductor is, how sure we are of it, what it costs, and against whom."""
