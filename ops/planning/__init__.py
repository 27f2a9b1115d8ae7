"""Estimate what a recipe needs before anything is spent: memory, disk, calls, USD, hours and missing requirements.

This package contains arithmetic on settings, published figures and files on this machine, the list of requirements,
and the check that refuses to start while a requirement is missing. It makes no call and does not import torch.
"""
