"""What the Conductor is measured against: one file each, named as recipes name it, that holds one function.

What belongs here: `@baseline`, computed from what the workers answered alone; `@asking`, which runs workflows of its
own, learned from the training mix or fixed; and, in files that begin with an underscore, what several share. What does
not: a Conductor, and anything that reads the test's gold answers.
Nothing else names a baseline: `ops.evaluation.baseline.BASELINES` lists this folder.
"""
