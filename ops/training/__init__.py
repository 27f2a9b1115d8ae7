"""Train a Conductor: cold start, GRPO, and the adaptive and recursive stages.

Everything that changes weights is in six packages. Three are at the base: `run` (a run's folder and processes),
`rewards` and `cold_start`. Above these are `step` (one step of GRPO), `stages` (what the adaptive and the recursive
stage add) and `grpo` (a whole run, and the program that trains it). The module `guards` checks a finished run.

Only this package may import torch, transformers, trl or deepspeed at module level. Its modules that the rest of Podium
imports (`run.training_run`, `guards`) and the entry point of `grpo` read their input before they import these
libraries.
"""
