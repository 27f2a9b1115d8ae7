"""Retraining: its triggers (a change of the pool, the clock), and the job that executes a change's plan.

What belongs here: the sensor, the schedules, the jobs and the functions of their commands. What does not: what a plan
is, costs or decides (`ops.retraining`).
"""
