"""Studies: changes of a recipe, of written workflows, of the pool or of the number of rounds, as arms of one table.

What belongs here: how the arms of each kind are made, and how a study is stored and found again. What does not: what is
changed (`config/studies.yaml`, `ops.evaluation.studies`), and the table of the arms (`ops.evaluation.arms`).
"""
