"""Retraining: what starts it (a change of the pool, the clock), and the job that executes a change's plan.

What belongs here: sensor, schedules, jobs, the commands' side of them. What does not: what a plan is, costs or decides
(`ops.retraining`).
"""
