"""Which errors only say that a device has too little of something for what was tried.

The library and what it calls raise them as errors of several classes, some of the plainest, so
their words count.
"""

from __future__ import annotations

import torch

NO_MEMORY = "out of device memory"
ELSEWHERE = "a rank had no room"
SHORTAGES = {
    "out of memory": NO_MEMORY,  # the CUDA runtime and driver
    "_STATUS_ALLOC_FAILED": NO_MEMORY,  # cuBLAS, cuDNN: their workspaces
    "out of resource": "out of device resources",  # Triton: shared memory, registers
    "too many resources requested": "out of device resources",  # a launch's registers
}
"""Words of an error, and the reason in ours."""
MAX_ERROR_CHARS = 160
"""Characters of an error that are told."""


def shortage(error: Exception) -> str | None:
    """The reason why there is no room, None where the error says anything else."""
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return NO_MEMORY
    text = " ".join(str(error).split())
    for words, why in SHORTAGES.items():
        if words in text:
            return f"{why} ({text[:MAX_ERROR_CHARS]})"
    return None
