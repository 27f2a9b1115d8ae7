"""The folder and the processes of a training run.

What belongs here: plan and result, checkpoints and full disks, starting and stopping the ranks, their error messages,
and tracking of the curve. What does not: what a step does.
"""
