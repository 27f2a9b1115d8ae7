"""Estimate what a recipe needs before anything is spent: memory, disk, calls, USD, hours and missing requirements.

This package computes with settings, published figures and files on this machine. It also contains the list of
requirements, and the check that refuses to start a run while a requirement is missing. It sends no calls and does not
import torch.
"""
