"""Tables, charts and pages of an evaluation, made from stored results.

This package contains exhibits (one file each in `exhibits`), templates of HTML pages, and Markdown. Calls and scoring
belong in `ops.stages` and `ops.evaluation`, statistics in `ops.results.statistics`, charts in `ops.core.charts`.
Reports contain names and numbers only, no question, answer or workflow.
"""
