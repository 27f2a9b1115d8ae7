"""The store: what is expensive is paid for or computed once.

A value lies under the SHA-256 of everything that determines it. There are three kinds: the workers' responses, the
completions of a policy, and the verdicts on programs. Precaching, training, evaluation, baselines and serving share
them, and one process or thread at a time computes a value (`claims`). The store is a SQLite file by default, and a
Redis or Postgres server for a team. What does not belong here: which values are stored (client, writer, grading), and
what they cost (ledger).
"""

from ops.store.entries import CACHE_URL, Backend, Claim, ClaimLost, Kind, cache_key, cache_material, canonical_json
from ops.store.responses import ResponseCache, open_backend, open_cache
from ops.store.values import ComputedValue, ValueStore

__all__ = [
    "CACHE_URL",
    "Backend",
    "Claim",
    "ClaimLost",
    "ComputedValue",
    "Kind",
    "ResponseCache",
    "ValueStore",
    "cache_key",
    "cache_material",
    "canonical_json",
    "open_backend",
    "open_cache",
]
