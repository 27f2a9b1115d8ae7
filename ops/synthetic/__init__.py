"""The synthetic environment, which needs no downloads and no keys.

It has families of problems that are generated from a seed, tool workers that solve parts of a problem, and generalist
workers that try to solve any problem. Code that real benchmarks or real models use does not belong here. No other
package imports this one. Instead, `ops.core.registry` names its module `plugin`, which registers the workers, problems
and workflows.

The families and the workers share the fact tables in `data/knowledge` and the meaning of formal clauses (`phrases`).
A worker knows nothing else about a problem than the messages that it receives.
"""
