"""Providers that LiteLLM does not know: one file each, with one `Provider` named as the file and as its models' prefix.

What belongs here: one request to a provider, and its reply. What does not: limits, retries, cost, the cache
(`ops.workers`), which these calls have like any other's.
"""
