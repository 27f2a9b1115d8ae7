"""The store of what is expensive to obtain: workers' responses, completions of a policy, and verdicts on programs.

Each value is stored under the SHA-256 of everything that determines it. Precaching, training, evaluation, baselines and
serving share the values, and only one process or thread at a time computes a value (`claims`). The store is a SQLite
file by default, and a Redis or Postgres server for a team. Which values are stored is decided by their producers
(client, writer, grading), and what they cost is recorded by the ledger.
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
