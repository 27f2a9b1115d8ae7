"""Making a Conductor: cold start, then GRPO.

What belongs here: everything that changes weights, and the plan and the forecast of a run. The only room
whose modules may import torch, transformers, trl or deepspeed at module level; those that
a person calls by name (`grpo`, `plan`, `forecast`) read their input first and import after.
"""
