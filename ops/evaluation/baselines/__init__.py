"""Baselines that the Conductor is compared with: one file per baseline, named as in recipes, with one function.

Functions with `@computed_baseline` compute scores from the workers' own answers; functions with `@workflow_baseline`
run fixed or learned workflows. Code that several baselines share is in files that begin with an underscore. A Conductor
does not belong here, nor does anything that reads the gold answers of the test. `ops.evaluation.baseline.BASELINES`
lists this folder; no other code names a baseline.
"""
