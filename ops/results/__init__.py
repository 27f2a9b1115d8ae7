"""The results table: a row for each system, question and repeat, and every figure that is computed from these rows.

What belongs here: the record of a row, the Parquet files, pricing, summaries as polars expressions, and statistics as
functions over arrays. What does not: who answers the questions (`ops.evaluation`) and the decision that follows from
the figures (`ops.release`).
"""
