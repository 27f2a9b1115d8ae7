"""Start the pipeline: definitions, jobs, schedules, sensors and the command `podium`.

What belongs here: when which assets run, and what a terminal shows. What does not: the assets (`assets`) and their
operations (`ops`).
"""
