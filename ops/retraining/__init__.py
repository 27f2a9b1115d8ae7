"""Keep a champion up to date with its pool: find the work that a change of the pool requires, estimate its cost, decide
whether to train, and detect drift.

This package holds the plan of a change, its cost, the two conditions for training (the champion fails the gate; a new
worker pays), the policy from which fine-tuning starts, and the questions that are asked repeatedly to detect drift.
`pipelines` and `assets` execute the plan. The promotion gate is in `ops.release`.
"""
