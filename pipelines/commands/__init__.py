"""The commands of a terminal, one module a group.

What belongs here: arguments, tables, exit codes. What does not: what the commands do (`ops`).
"""
