"""Names of arguments: groups, and what other programs call them."""

from __future__ import annotations

from collections.abc import Iterable

from ...spec.errors import InputError, nearest_name

FLAG_ALIASES = {
    name: flag
    for flag, names in {
        "--cluster": "gpus gpu devices nodes num-gpus num-nodes hardware machine ngpus device",
        "--global-batch": "batch batch-size global-batch-size gbs bs",
        "--micro-batch": "mbs micro-batch-size micro",
        "--seq-len": "seq sequence-length seqlen seq-length context context-length max-seq-len",
        "--dtype": "precision fp16 bf16 fp32",
        "--out": "o output save",
        "--deadline": "timeout time-limit time",
        "--tp": "tensor-parallel tensor-parallel-size tensor-model-parallel-size",
        "--pp": "pipeline-parallel pipeline-parallel-size pipeline-model-parallel-size stages",
        "--dp": "data-parallel data-parallel-size",
        "--first-stage-layers": "decoder-first-pipeline-num-layers",
        "--last-stage-layers": "decoder-last-pipeline-num-layers",
        "--shard": "zero zero-stage fsdp sharding",
        "--recompute": "checkpointing activation-checkpointing recomputation",
        "--version": "v V",
    }.items()
    for name in names.casefold().split()
}
"""Flags by their names in other programs."""
GROUPS: dict[str, tuple[str, ...]] = {
    "parts": ("workload", "constraints", "strategy", "include"),
    "size": ("global_batch", "global_batch_tokens", "seq_len"),
    "formats": ("dtype", "grad_dtype", "communication_dtype", "master_dtype", "moment_dtype"),
    "training": ("optimizer", "trainable", "task", "expert_load", "lengths"),
    "memory": ("memory_gib", "host_gib", "nvme_gib", "oom_risk"),
    "software": ("stack", "attention", "overlap", "calibration"),
    "goal": ("objective", "prices", "tokens", "prefer"),
    "search": ("pins", "allow", "top", "deadline_s", "executable"),
    "changes": ("set", "sweep", "add", "scale"),
    "degrees": ("tp", "pp", "vpp", "cp", "ep", "etp", "dp"),
    "stages": ("layers_per_stage", "first_stage_layers", "last_stage_layers", "schedule"),
    "strategy": ("sp", "shard", "micro_batch", "recompute"),
    "run": ("steps", "verify", "data", "tokenizer", "kernels", "trace", "lr", "routing_trace"),
    "weights": ("init_from", "save_hf", "out_dir", "checkpoint", "every", "resume", "new_stage"),
}
"""Arguments by what they are about; others are listed before them or after."""


def unknown_argument(name: str, names: Iterable[str], value: object = None) -> InputError:
    """The error for an argument that there is not: the nearest, and all by group."""
    known = tuple(dict.fromkeys(names))
    near = nearest_argument(name, known, value)
    return InputError(name, "an unknown argument", grouped_text(known), near)


def nearest_argument(name: str, names: Iterable[str], value: object = None) -> str:
    """The name that was meant, by its name elsewhere or by its letters; '' if none is close.

    A strategy's degree beside ``pins`` is named as the pin that it would be.
    """
    known, meant = tuple(names), meant_by(name)
    for candidate in (meant, f"{meant}_s"):
        if candidate in known:
            return candidate
    if meant in PINNED and "pins" in known:
        kind = int if meant in NUMBERED else str
        return f"pins={{{meant!r}: {repr(value) if isinstance(value, kind) else '…'}}}"
    return nearest_name(name, known, count=1)


def meant_by(name: str) -> str:
    """The argument that another program's name stands for, else the name itself."""
    flag = FLAG_ALIASES.get(name.casefold().lstrip("-").replace("_", "-"), name)
    return flag.removeprefix("--").replace("-", "_")


def grouped_text(names: Iterable[str]) -> str:
    """Names by group: ``model, cluster; size: global_batch, …``."""
    left = list(names)
    parts = []
    for group, members in GROUPS.items():
        inside = [name for name in members if name in left]
        left = [name for name in left if name not in inside]
        if inside:
            parts.append(f"{group}: {', '.join(inside)}")
    nouns = [name for name in left if name in NOUNS]
    others = [name for name in left if name not in NOUNS]
    first = [", ".join(nouns)] if nouns else []
    last = [f"others: {', '.join(others)}"] if others else []
    return "; ".join([*first, *parts, *last])


NOUNS = ("model", "cluster", "plan", "plan_id", "plan_or_model", "first", "second")
"""What a question is about."""
NUMBERED = (*GROUPS["degrees"], "micro_batch")
PINNED = (*NUMBERED, "sp", "shard", "recompute", "schedule")
"""Arguments of a simulation that a search takes as pins."""
