"""Release a scored policy: registry, gate, lineage, traces, and the served champion.

What belongs here: versions, aliases, the gate's decision, serving the champion. What does not: scores
(`ops.evaluation`), and when to release (`pipelines`).
"""
