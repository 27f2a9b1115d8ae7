"""From a scored policy to a served champion: registry, gate, drift of the pool, traces, answers.

What belongs here: versions, aliases, the gate's decision, serving. What does not: scores (`ops.evaluation`),
when to release (`pipelines`).
"""
