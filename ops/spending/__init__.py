"""Spending: the record of all costs in a ledger, and the guarantee that no cap is exceeded.

This package holds reservations, their settlement, reading the ledger, and the formatting of amounts. The prices of
workers are in `ops.config`, and estimates of future costs in `ops.planning.estimate`.
"""
