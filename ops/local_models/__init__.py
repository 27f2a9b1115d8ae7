"""Language models on this machine: vLLM servers that answer as workers of a pool.

This package provides the files of a model, and starts, monitors and stops servers. Calls to the servers are in
`ops.workers`.
"""
