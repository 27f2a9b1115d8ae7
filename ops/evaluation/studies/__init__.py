"""Studies without training: one file per study, with one `@intervention` or `@observation` of the file's name.

What belongs here: the changes that a study makes to a policy's workflows, or its analysis of training records. What
does not: executing and storing changed workflows (`ops.stages.studies`), and studies that train a policy
(`config/studies.yaml`).
"""
