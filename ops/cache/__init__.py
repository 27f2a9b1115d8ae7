"""The response cache: a worker's response is paid for once.

The cache is content-addressed: the key is the SHA-256 of the canonical JSON of everything that can change the response
(worker identity, messages, sample index). Precaching, training, evaluation, baselines and serving share it: one SQLite
file by default, a Redis server for a team. What does not belong here: which responses are stored (client) and their
cost (ledger).
"""

from ops.cache.backend import CACHE_URL, CallClaim, ClaimLost, cache_key, cache_material, canonical
from ops.cache.front import ResponseCache, open_cache

__all__ = [
    "CACHE_URL",
    "CallClaim",
    "ClaimLost",
    "ResponseCache",
    "cache_key",
    "cache_material",
    "canonical",
    "open_cache",
]
