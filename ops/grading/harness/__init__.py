"""The code that runs inside the sandbox: it reads one job, runs the program on its tests, and reports.

This is the untrusted side. The modules are sent as compiled code to a fresh `python -S`, and import the standard
library and each other. The expected outputs of "stdin" and "call" tests and the verdicts stay outside
(`ops.grading.graders.code`): a program can only send its own values, which are compared with outputs that it never
received.
"""
