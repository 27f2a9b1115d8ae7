"""Benchmarks: each compares two measurements of one run. `make bench` runs them all; nothing here is a test."""
