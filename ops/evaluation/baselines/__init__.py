"""What the Conductor is measured against: one file each, named as recipes name it, that holds one `@baseline` function.

What belongs here: a system that is computed from what the workers answered alone. What does not: what asks workers.
Nothing else names a baseline: `ops.evaluation.baseline.BASELINES` lists this folder.
"""
