"""What a rank on cores keeps of freed memory, seen by the system's own counts."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

PROGRAM = """
import resource
import numpy
from shardwright.executor.host.heap import keep_freed_memory, return_freed_memory
from shardwright.executor.host.process_memory import resident_bytes

SIZE = 2**26

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    numpy.full(SIZE, 1, dtype=numpy.int8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

given = [faults() for _ in range(2)][1]
keep_freed_memory()
kept = [faults() for _ in range(2)][1]
held = resident_bytes()
return_freed_memory()
print(given, kept, held - resident_bytes(), faults())
"""
GLIBC = sys.platform.startswith("linux") and hasattr(ctypes.CDLL(None), "gnu_get_libc_version")


@pytest.mark.skipif(not GLIBC, reason="another C library, which is left as it is")
def test_freed_blocks_stay_until_they_are_given_back() -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    given, kept, returned, again = map(int, done.stdout.split())
    # Huge pages make fewer faults of as many bytes, so only what must vanish is compared in full.
    assert kept < max(8, given / 4)
    assert returned > 0.9 * 2**26
    assert again > kept
