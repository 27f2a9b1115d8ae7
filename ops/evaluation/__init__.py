"""The evaluation of a Conductor: its accuracy, the uncertainty of that accuracy, its cost, and comparable systems.

This package scores systems on test questions and computes statistics and tables. The promotion gate, which uses the
scores, belongs in `ops.release`.
"""
