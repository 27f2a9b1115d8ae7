"""Studies: changes of a recipe, of generated workflows, of the pool or of the number of rounds, as arms of one table.

This package makes the arms of each kind of study, and stores and reads studies. The changes are defined in
`config/studies.yaml` and `ops.evaluation.studies`, the table of arms in `ops.evaluation.arms`.
"""
