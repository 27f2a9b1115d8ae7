"""The Conductor's core: its grammar, its prompt, and the execution of its workflows.

What belongs here: parsing text to `Workflow` (`grammar`), problem to messages (`build_prompt`), workflow to answer
(`execution`, recorded in `build_trace`), and pictures of both (`rendering`). What does not: calling a provider
(`ops.workers`), judging an answer (`ops.grading`).
"""
