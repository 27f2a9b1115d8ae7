"""Benchmarks: each prints two sides of one run. `make bench` runs them all; nothing here is a test."""
