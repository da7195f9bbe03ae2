"""The C library's heap of a rank on cores.

A step frees its activations, and the next one asks for as many bytes. glibc gives blocks of more
than some MiB back to the system when they are freed, which hands out zeroed pages anew, a fault for
each (mallopt(3), ``M_MMAP_MAX`` and ``M_TRIM_THRESHOLD``). Kept, they are written again at once:
steps of 4,096 tokens of a model 256 wide took a quarter less of a core's time so, and what a kernel
takes in a step is what it takes when it is timed alone.
"""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
NEVER = -1


def keep_freed_memory() -> None:
    """Keep freed blocks in this process from now on; only glibc gives them back."""
    library = _glibc()
    if library is not None:
        library.mallopt(M_MMAP_MAX, 0)
        library.mallopt(M_TRIM_THRESHOLD, NEVER)


def return_freed_memory() -> None:
    """Give the pages that are free now back to the system (``malloc_trim``)."""
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None
