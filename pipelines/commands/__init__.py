"""The commands of `podium`, one module per group.

What belongs here: arguments, tables, exit codes. What does not: the operations behind the commands (`ops`, and
`pipelines` for those that need Dagster), and any slow import at module level, because `podium --help` imports every
module of this folder.
"""
