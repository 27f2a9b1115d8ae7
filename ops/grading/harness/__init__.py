"""The code that runs inside the sandbox: it reads one job, runs the program on its tests, and reports.

What belongs here: the untrusted side. The modules are sent as compiled code to a fresh `python -S`; they import the
standard library and each other. What does not: expected outputs of "stdin" and "call" tests, and verdicts. Those stay
outside (`ops.grading.graders.code`): a program can only send its own values, which are compared with outputs that it
never received.
"""
