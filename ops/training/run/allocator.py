"""glibc's allocator while a policy is trained."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of `mallopt`, which glibc's `malloc.h` defines."""
_MIB = 1 << 20


@contextmanager
def reuse_freed_memory() -> Iterator[None]:
    """Inside the block, let the process reuse the memory of freed tensors: up to 1 GiB, tensors up to 256 MiB.

    By default glibc returns each large tensor to the kernel when it is freed, and the kernel clears the pages of the
    next one, which slows training on CPUs. The memory is returned when the block ends. Does nothing without glibc.
    """
    if not _set_thresholds(256 * _MIB, 1024 * _MIB):
        yield
        return
    try:
        yield
    finally:
        _set_thresholds(32 * _MIB, 64 * _MIB)  # the largest values that glibc itself would have chosen
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))


def _set_thresholds(largest: int, kept: int) -> bool:
    """Return whether glibc serves blocks up to `largest` bytes from memory of which it keeps `kept` bytes."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt") or not hasattr(library, "malloc_trim"):
        return False
    return bool(library.mallopt(_MMAP_THRESHOLD, largest) and library.mallopt(_TRIM_THRESHOLD, kept))
