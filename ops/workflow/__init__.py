"""The Conductor's core: its grammar, its prompt, and the execution of its workflows.

What belongs here: parsing text to `Workflow` (`grammar`), problem to messages (`prompt`), workflow to answer
(`execution`, recorded in `trace`), and pictures of both (`rendering`). What does not: calling a provider
(`ops.workers`), judging an answer (`ops.grading`).
"""
