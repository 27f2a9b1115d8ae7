"""Baselines that the Conductor is compared with: one file per baseline, named as in recipes, with one function.

What belongs here: functions with `@baseline`, which compute scores from the workers' own answers; functions with
`@asking`, which run fixed or learned workflows; shared code, in files that begin with an underscore. What does not: a
Conductor, and anything that reads the gold answers of the test.
`ops.evaluation.baseline.BASELINES` lists this folder; no other code names a baseline.
"""
