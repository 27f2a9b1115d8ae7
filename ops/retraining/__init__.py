"""Keep a champion up to date with its pool: the work and cost of a pool change, the training decision, drift.

This package contains the plan of a change, its cost, the two decisions (below the gate, pays), the policy that
fine-tuning starts from, and the questions that are asked again to detect drift. The plan is executed by `pipelines` and
`assets`; the gate is in `ops.release`.
"""
