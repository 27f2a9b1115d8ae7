"""The Conductor's core: what it may write, what it is shown, and how its workflow is run.

What belongs here: text to `Workflow` (`grammar`), problem to messages (`prompt`),
workflow to answer (`execution`, recorded in `trace`) and both to pictures (`rendering`).
What does not: calling a provider (`ops.workers`), judging an answer (`ops.grading`).
"""
