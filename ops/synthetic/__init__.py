"""The embedded world: seeded problem families, tools that can solve parts of them, generalists that try all.

What belongs here: everything that exists only so that the quickstart can run without
a download or a key. What does not: anything that real benchmarks or real models use.
Nothing outside imports it: `ops.core.registry` names `plugin`, which registers its workers, problems and workflows.

The families (who asks) and the workers (who answers) share the fact tables in `data/knowledge` and the meaning of
formal clauses (`ledgers`): a worker reads only the messages that it is sent.
"""
