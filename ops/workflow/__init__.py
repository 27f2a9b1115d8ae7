"""The grammar of workflows, the Conductor's prompt, and the execution of workflows.

This package parses a completion (`grammar`), builds the prompt for a problem (`prompt`), executes a workflow
(`execution`), records the execution (`trace`), and renders both for people (`rendering`). Calls of providers belong to
`ops.workers`, and the grading of answers to `ops.grading`.
"""
