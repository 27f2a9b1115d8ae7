"""The synthetic environment: seeded problem families, tool workers that solve parts, generalists that try everything.

What belongs here: everything that only the quickstart without downloads and keys needs. What does not: anything that
real benchmarks or real models use. No other package imports it: `ops.core.registry` names `plugin`, which registers its
workers, problems and workflows.

The problem families and the workers share the fact tables in `data/knowledge` and the meaning of formal clauses
(`ledgers`): a worker reads only the messages that it receives.
"""
