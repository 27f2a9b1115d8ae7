"""Language models on this machine: vLLM servers that answer as workers of a pool.

What belongs here: a model's files; starting, monitoring and ending servers. What does not: calling them
(`ops.workers`).
"""
