"""Making a Conductor: cold start, then GRPO, and what goes on from there.

What belongs here: everything that changes weights, in six rooms. `run` (a run as a folder and processes), `rewards`
(what rollouts earn) and `cold_start`; on these `step` (one step of GRPO), `stages` (what the adaptive and the recursive
one add), `grpo` (a whole run, and the entry point). Here: the forecast of a run, and the guards that read one.

The only room whose modules may import torch, transformers, trl or deepspeed at module level; those that a person calls
by name (`grpo`, `run.plan`, `forecast`) read their input first and import after.
"""
