"""Failures of a paid API, on loopback: the server that fails on command, and what must hold then."""
