"""Hooks for providers that LiteLLM does not know: one file each, with one `ProviderHook` named as its file.

What belongs here: one request to a provider, and its reply. What does not: limits, retries, cost, the cache
(`ops.workers.call`), which a hook's calls have like any other's.
"""
