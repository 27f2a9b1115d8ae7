"""The system calls that programs are refused: a process has every capability in a user namespace that it makes."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _MACHINE, _FIRST_ARGUMENT = 0, 4, 16
"""Offsets in the kernel's `seccomp_data`."""
_ALLOW, _NOT_PERMITTED, _NOT_IMPLEMENTED = 0x7FFF0000, 0x00050001, 0x00050026
_NEW_USER_NAMESPACE = 0x10000000
_OTHER_NUMBERS = 0x40000000
"""From here on x86 numbers its system calls for 32-bit pointers."""
_CLONE3 = 435
"""Its flags lie in memory, which a filter cannot read; the C library uses `clone` where it is not implemented."""
_MACHINES = {
    "x86_64": (0xC000003E, {"clone": 56, "unshare": 272, "setns": 308}),
    "aarch64": (0xC00000B7, {"clone": 220, "unshare": 97, "setns": 268}),
}


def namespace_filter() -> bytes:
    """A seccomp filter that refuses to make or enter a user namespace; empty on machines whose numbers are unknown."""
    if (known := _MACHINES.get(os.uname().machine)) is None:
        return b""
    machine, numbers = known
    return b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (_LOAD, 0, 0, _MACHINE),
            (_EQUAL, 0, 9, machine),
            (_LOAD, 0, 0, _NUMBER),
            (_AT_LEAST, 7, 0, _OTHER_NUMBERS),
            (_EQUAL, 7, 0, _CLONE3),
            (_EQUAL, 5, 0, numbers["setns"]),
            (_EQUAL, 1, 0, numbers["unshare"]),
            (_EQUAL, 0, 2, numbers["clone"]),
            (_LOAD, 0, 0, _FIRST_ARGUMENT),
            (_ANY_BIT, 1, 0, _NEW_USER_NAMESPACE),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _NOT_PERMITTED),
            (_RETURN, 0, 0, _NOT_IMPLEMENTED),
        )
    )


@contextmanager
def filter_descriptors() -> Iterator[tuple[int, ...]]:
    """A descriptor from which bubblewrap reads the filter; none where there is no filter."""
    content = namespace_filter()
    if not content:
        yield ()
        return
    reading, writing = os.pipe()
    try:
        os.write(writing, content)
        os.close(writing)
        yield (reading,)
    finally:
        os.close(reading)
