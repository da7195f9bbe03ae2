"""Recognition of errors that mean out of memory or resources.

torch and the libraries under it raise them as errors of several classes, some of the plainest, so
the text decides.
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
"""Text of an error -> the reported reason."""
MAX_ERROR_CHARS = 160
"""Characters of an error that are reported."""


def shortage(error: Exception) -> str | None:
    """The reason for lack of resources; None for any other error."""
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return NO_MEMORY
    text = " ".join(str(error).split())
    for phrase, reason in SHORTAGES.items():
        if phrase in text:
            return f"{reason} ({text[:MAX_ERROR_CHARS]})"
    return None
