"""Settings of glibc's memory allocator while a policy is trained."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""The numbers of two parameters of `mallopt`, as glibc's `malloc.h` defines them."""
_MIB = 1 << 20


@contextmanager
def reuse_freed_memory() -> Iterator[None]:
    """Inside the block, let the process reuse the memory of freed tensors: up to 1 GiB, for tensors of up to 256 MiB.

    By default glibc returns each large tensor to the kernel when it is freed, and the kernel clears the pages of the
    next one, which slows training on CPUs. The memory is returned when the block ends. Nothing happens without glibc.
    """
    if not _set_thresholds(256 * _MIB, 1024 * _MIB):
        yield
        return
    try:
        yield
    finally:
        _set_thresholds(32 * _MIB, 64 * _MIB)  # the largest values that glibc chooses by itself
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))


def _set_thresholds(largest: int, kept: int) -> bool:
    """Let glibc serve blocks of up to `largest` bytes from memory of which it keeps `kept` bytes, and return True on
    success."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt") or not hasattr(library, "malloc_trim"):
        return False
    return bool(library.mallopt(_MMAP_THRESHOLD, largest) and library.mallopt(_TRIM_THRESHOLD, kept))
