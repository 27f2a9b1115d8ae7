"""The results table, with one row for each system, question and repeat, and every figure that is computed from its
rows.

This package holds the record of a row, the Parquet files, the prices, summaries as polars expressions, and statistics
as functions over arrays. Who answers the questions is the task of `ops.evaluation`, and the decisions that follow from
the figures are taken in `ops.release`.
"""
