"""Keeping a champion true to its pool: what a change requires and costs, whether it is worth training, drift.

What belongs here: the plan of a change, when it is settled, its price, the two decisions (below the gate, pays), the
policy that fine-tuning starts from, probes of workers and the test on them. What does not: executing the plan
(`pipelines`, over `assets`), the gate itself (`ops.release`).
"""
