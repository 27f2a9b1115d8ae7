"""The embedded world: seeded problem families, and tool workers that can solve parts of them.

What belongs here: everything that exists only so that the quickstart can run without
a download or a key. What does not: anything that real benchmarks or real models use.
Only `ops.benchmarks.base` and `ops.workers.providers` know this room.

The families (who asks) and the tools (who answers) share the fact tables in
`data/knowledge` and nothing else: a tool reads only the messages that it is sent.
"""
