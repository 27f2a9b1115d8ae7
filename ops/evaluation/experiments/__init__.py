"""Experiments that train nothing: one file each, named as `podium experiments` names it, that holds one `@intervention`
or one `@observation`.

What belongs here: what is changed in a policy's workflows, or read from a training's records. What does not: how the
changed workflows are run and kept (`ops.stages.experiments`), and what has to be trained anew for
(`config/experiments.yaml`).
"""
