"""The commands of `podium`, one module a group.

What belongs here: arguments, tables, exit codes. What does not: what the commands do (`ops`, and `pipelines` for
what needs Dagster), and any heavy import at module level: `podium --help` imports every module of this folder.
"""
