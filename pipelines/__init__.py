"""WHEN things happen: definitions, the lifecycle job, schedule and sensor, and the commands behind `make`.

What belongs here: what starts which assets, and what a person at a terminal sees of it.
What does not: what the assets are (`assets`) and how they are made (`ops`).
"""
