"""What the Conductor is measured against: one file each, named as recipes name it.

What belongs here: one `@baseline` function, computed from what the workers answered alone, or one `@asking` function,
whose method asks them. What does not: running, grading and keeping (`ops.evaluation.asking`, `stored_baselines`).
Nothing else names a baseline: `ops.evaluation.baseline.BASELINES` lists this folder.
"""
