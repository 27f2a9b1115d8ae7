"""What runs inside the sandbox: reads one job, runs the program on its tests, reports.

What belongs here: the program's side of the wall. The modules are sent as compiled code to a fresh
`python -S`; they import the standard library and each other. What does not: expected outputs of "stdin"
and "call" tests, and verdicts. Those stay outside (`ops.grading.code`): whatever a program does to this
code, all that it can send is values of its own, which are compared with what it never saw.
"""
