"""The graders: one file each, named as benchmarks and recipes name it, with one `Grader` of that name.

What belongs here: what a grader expects, finds and accepts. What does not: readers of mathematics, numbers and texts
that several graders share, and the sandbox (`ops.grading`); the calls to a judge (`ops.workflow.judging`).
"""
