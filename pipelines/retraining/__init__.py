"""Retraining: its triggers (a change of the pool, the clock) and its commands.

What belongs here: the sensors, the schedules and the functions of the commands. What does not: the job
(`pipelines.lifecycle`), and what a plan is, costs or decides (`ops.retraining`).
"""
