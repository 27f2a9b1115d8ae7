"""Studies that train nothing: one file each, named as `podium study` names it, with one `@intervention` or one
`@observation`.

What belongs here: what is changed in a policy's workflows, or read from the records of a training. What does not: how
changed workflows are executed and stored (`ops.stages.studies`), and what needs a training (`config/studies.yaml`).
"""
