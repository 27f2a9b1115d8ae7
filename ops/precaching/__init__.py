"""What the workers can do alone: their answers to every shortlisted problem, profiles, estimates, rehearsals.

What belongs here: asking workers about many problems and what the answers say. What does not: one call
(`ops.workers`), choosing problems by the answers (`ops.curation`).
"""
