"""Studies without training: one file per study, with one `@intervention` or `@observation` of the file's name.

A file states the changes that a study makes to a policy's workflows, or its analysis of training records. Executing and
storing changed workflows belongs in `ops.stages.studies`, and studies that train a policy in `config/studies.yaml`.
"""
