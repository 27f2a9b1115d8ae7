"""Functions for assets and DVC stages: read files, call one operation, write files.

This package contains one function per stage. The operations belong in lower packages, Dagster code in `assets`.
"""
