"""The graders: one file each, named as benchmarks and recipes name it, with one `Grader` of that name.

A file states what its grader expects, finds and accepts. Readers of mathematics, numbers and texts that several graders
share, and the sandbox, belong in `ops.grading`; the calls to a judge belong in `ops.workflow.judging`.
"""
