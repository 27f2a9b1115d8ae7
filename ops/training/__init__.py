"""Train a Conductor: cold start, GRPO, and the adaptive and recursive stages.

Everything that changes weights is in six packages: `run_training` (a run's folder and processes), `rewards` and
`cold_start`; above these `log_step` (one step of GRPO), `stages` (the additions of the adaptive and recursive stage)
and `grpo` (a whole run, and the entry point). This package itself has the forecast of a run and the guards that check a
finished one.

Only this package may import torch, transformers, trl or deepspeed at module level; its entry points (`grpo`,
`run_training.plan`, `forecast`) read their input before they import them.
"""
