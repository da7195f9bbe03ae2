"""Words that a plan, workload or stack chooses among, in the order in which they are listed.

Help and completion of the command line read them, so nothing slow is imported here.
"""

from __future__ import annotations

from typing import Literal

SequenceParallel = Literal["none", "megatron", "ulysses"]
Recompute = Literal["none", "selective", "full"]
AttentionImpl = Literal["flash", "unfused"]
Overlap = Literal["none", "dp", "dp+tp", "all"]
KernelPolicy = Literal["auto", "portable", "fused"]
CompileMode = Literal["default", "cuda_graph"]
Optimizer = Literal["adamw", "adam", "adamw8bit", "muon", "sgd", "adafactor"]
Objective = Literal["throughput", "cost", "largest-batch", "largest-sequence"]
Preference = Literal["best", "simple"]

SEQUENCE_PARALLELS: tuple[SequenceParallel, ...] = ("none", "megatron", "ulysses")
RECOMPUTES: tuple[Recompute, ...] = ("none", "selective", "full")
"""From nothing to everything: each does what the one before it does, and more."""
ATTENTIONS: tuple[AttentionImpl, ...] = ("flash", "unfused")
OVERLAPS: tuple[Overlap, ...] = ("none", "dp", "dp+tp", "all")
KERNEL_POLICIES: tuple[KernelPolicy, ...] = ("auto", "portable", "fused")
COMPILE_MODES: tuple[CompileMode, ...] = ("default", "cuda_graph")
COMPILE_WORDS = ("none", *COMPILE_MODES)
OffloadWord = Literal["optimizer", "all"]
OFFLOADS: tuple[OffloadWord, ...] = ("optimizer", "all")
OFFLOAD_WORDS = ("none", *OFFLOADS)
"""What a flag or a pin says of ``spec.techniques.compile``; none: it is absent from the plan."""
OPTIMIZERS: tuple[Optimizer, ...] = ("adamw", "adam", "adamw8bit", "muon", "sgd", "adafactor")
OBJECTIVES: tuple[Objective, ...] = ("throughput", "cost", "largest-batch", "largest-sequence")
PREFERENCES: tuple[Preference, ...] = ("best", "simple")
