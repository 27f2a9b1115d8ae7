"""Call the worker models of a pool within their limits and the budget.

This package makes calls, applies the workers' limits, classifies failures, opens circuit breakers and computes costs.
Responses are stored by `ops.store`, spending is recorded by `ops.spending`, and many problems are sent by
`ops.precaching`.
"""
