"""Memory of freed tensors is reused inside the block and returned to the kernel after it."""

import ctypes
import subprocess
import sys

import pytest

PROGRAM = """
import resource
from ops.training.run.allocator import reused_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        b"x" * (64 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident_mib():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() >> 20

outside = faults()
with reused_memory():
    inside = faults()
    kept = resident_mib()
print(outside, inside, kept, resident_mib())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the allocator is not glibc's")
def test_freed_memory_is_reused_inside_the_block_and_returned_after_it() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    outside, inside, kept, after = map(int, done.stdout.split())
    assert inside < outside / 10, done.stdout
    assert kept - after >= 60, done.stdout
