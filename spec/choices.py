"""Literal types of plans, workloads and stacks, in listing order.

Help and completion of the command line read them, so nothing slow is imported here.
"""

from __future__ import annotations

from typing import Literal

SequenceParallel = Literal["none", "megatron", "ulysses"]
Recompute = str
"""One of ``RECOMPUTE_WORDS``, or ``ops:save=NAMES`` (spec.recomputation)."""
AttentionImpl = Literal["flash", "unfused"]
Overlap = Literal["none", "dp", "dp+tp", "all"]
KernelPolicy = Literal["auto", "portable", "fused"]
Optimizer = Literal["adamw", "adam", "adamw8bit", "lion", "muon", "sgd", "adafactor"]
Objective = Literal["throughput", "cost", "largest-batch", "largest-sequence"]

SEQUENCE_PARALLELS: tuple[SequenceParallel, ...] = ("none", "megatron", "ulysses")
RECOMPUTES: tuple[Recompute, ...] = ("none", "selective", "full")
"""From nothing to everything; each includes the one before it."""
RECOMPUTE_WORDS: tuple[Recompute, ...] = ("none", "selective", "selective-ops", "full")
ATTENTIONS: tuple[AttentionImpl, ...] = ("flash", "unfused")
OVERLAPS: tuple[Overlap, ...] = ("none", "dp", "dp+tp", "all")
KERNEL_POLICIES: tuple[KernelPolicy, ...] = ("auto", "portable", "fused")
OPTIMIZERS: tuple[Optimizer, ...] = (
    "adamw",
    "adam",
    "adamw8bit",
    "lion",
    "muon",
    "sgd",
    "adafactor",
)
RUN_MOMENTS: dict[str, int] = {"adamw": 2, "lion": 1}
"""Optimizers that the executor runs, and their moments of a parameter."""
OBJECTIVES: tuple[Objective, ...] = ("throughput", "cost", "largest-batch", "largest-sequence")
CHECKPOINT_FORMATS = ("shardwright", "dcp", "hf")
"""Of a converted checkpoint: ours, torch's distributed one, a folder of transformers."""
GALVATRON_COSTS = ("galvatron", "ours")
