"""Read Galvatron's JSON.

Names and defaults: Hetu-Galvatron galvatron/utils/config_utils.py (config2strategy),
galvatron/core/runtime/hybrid_parallel_config.py and args_schema.py at cea12ff.
"""

from __future__ import annotations

from typing import Any

from ....spec.errors import InputError
from ....spec.limits import MAX_DEGREE
from ..file_keys import FileKeys
from ..framework import Reading
from ..framework_file import FrameworkFile
from ..settings import BlockSettings, Settings, said

TP = "tp_sizes_enc"
SCHEDULES = {"gpipe": "gpipe", "pipedream_flush": "1f1b"}
SHARDS = {"ddp": "zero0", "zero2": "zero2", "zero3": "zero3"}
EMBEDDING = ("embed_sdp", "vocab_sdp")
"""Sharding of embedding and head, as the search writes it and as the runtime reads it."""


def recognizes(file: FrameworkFile) -> bool:
    """True if the keys are Galvatron's."""
    return {"pp_deg", TP} <= set(file.keys)


def read(reading: Reading) -> Settings:
    """The run of a configuration.

    Raises:
        InputError: a value that cannot be read, or that changes the price and has no counterpart.
    """
    keys = reading.keys
    keys.require(("pp_deg", TP, "global_bsz", "chunks"))
    pp = keys.count("pp_deg")
    if keys.count_or("world_size", reading.devices) != reading.devices:
        given = f"{reading.devices} devices"
        allowed = f"{keys.document['world_size']}: world_size of {keys.where}"
        raise InputError("--cluster", given, allowed)
    if reading.devices % pp:
        raise keys.error("pp_deg", f"a divisor of the {reading.devices} devices")
    ranks = reading.devices // pp
    default = _default_shard(keys)
    blocks = _blocks(keys, ranks, default)
    ends = _ends(keys, ranks, default)
    width = ends["tp"] * ends["cp"]
    return Settings(
        stack="galvatron",
        inputs={"global_batch": keys.count("global_bsz"), "optimizer": "adamw"},
        strategy={
            **ends,
            "pp": pp,
            "schedule": _schedule(keys, pp),
            "micro_batch": _micro_batch(keys, ranks // width),
        },
        blocks=BlockSettings(
            counts=_counts(keys, pp, len(blocks)), strategies=blocks, where=f"{keys.where}: {TP}"
        ),
    )


def _blocks(keys: FileKeys, ranks: int, default: str) -> tuple[dict[str, Any], ...]:
    """Strategy flags of each block."""
    sizes = _list(keys, TP, None, MAX_DEGREE)
    count = len(sizes)
    ulysses = _list(keys, "use_sp", count, 1, 0)
    rings = _list(keys, "cp_sizes_enc", count, MAX_DEGREE, 1)
    whole = _list(keys, "dp_types_enc", count, 1, 0)
    recomputed = _list(keys, "checkpoint", count, 1, 0)
    experts = _list(keys, "ep_sizes_enc", count, MAX_DEGREE, 1)
    inside = _list(keys, "tp_of_ep_sizes_enc", count, MAX_DEGREE, 1)
    neighbors = _list(keys, "tp_consecutive_flags", count, 1, 1)
    for consecutive, size in zip(neighbors, sizes, strict=True):
        if not consecutive and 1 < size < ranks:
            raise keys.unsupported("tp_consecutive_flags", "1: consecutive ranks split a layer")
    for size, ring in zip(sizes, rings, strict=True):
        if ranks % (size * ring):
            key = TP if ring == 1 else f"{TP} x cp_sizes_enc"
            allowed = f"degrees that divide the {ranks} devices of a stage"
            raise InputError(f"{keys.where}: {key}", size * ring, allowed)
    return tuple(
        said(
            **_split(sizes[n], ulysses[n], rings[n]),
            shard="zero3" if whole[n] else default,
            recompute="full" if recomputed[n] else "none",
            ep=experts[n],
            etp=inside[n],
        )
        for n in range(count)
    )


def _ends(keys: FileKeys, ranks: int, default: str) -> dict[str, Any]:
    """Strategy flags of embedding and head."""
    size, ring = keys.count_or("vtp", 1), keys.count_or("vcp", 1)
    if size < 1 or ring < 1 or ranks % (size * ring):
        key = "vtp" if ring == 1 else "vtp x vcp"
        allowed = f"a degree that divides the {ranks} devices of a stage"
        raise InputError(f"{keys.where}: {key}", size * ring, allowed)
    flags = {keys.document[key] for key in EMBEDDING if keys.has(key)}
    if not flags <= {0, 1} or len(flags) > 1:
        allowed = "0 or 1, the same under both names"
        raise InputError(f"{keys.where}: {' and '.join(EMBEDDING)}", _text(flags), allowed)
    ulysses = keys.count_or("vsp", 0)
    if ulysses > 1:
        raise keys.error("vsp", "0 or 1")
    shard = "zero3" if flags == {1} else default
    return _split(size, ulysses, ring) | {"shard": shard, "recompute": "none", "vpp": 1}


def _split(size: int, ulysses: int, ring: int) -> dict[str, Any]:
    word = "none" if size == 1 else "ulysses" if ulysses else "megatron"
    return {"tp": size, "sp": word, "cp": ring}


def _text(values: set[Any]) -> str:
    return ", ".join(sorted(map(str, values)))


def _default_shard(keys: FileKeys) -> str:
    word = keys.word_or("default_dp_type", "", tuple(SHARDS))
    word = word or keys.assume("default_dp_type", "ddp", "left out; the default of Galvatron")
    if word != "ddp":
        why = "gradients are reduced each micro-batch, which train_dist.yaml says"
        keys.assume("async_grad_reduce", False, why)
    return SHARDS[word]


def _schedule(keys: FileKeys, pp: int) -> str:
    word = keys.word_or("pipeline_type", "", tuple(SCHEDULES))
    if pp == 1:
        return "1f1b"
    return SCHEDULES[word or keys.assume("pipeline_type", "gpipe", "left out; Galvatron's default")]


def _micro_batch(keys: FileKeys, dp: int) -> int:
    """Samples of a micro-batch on each replica of the embedding."""
    batch, chunks = keys.count("global_bsz"), keys.count("chunks")
    if batch % (chunks * dp):
        allowed = f"a multiple of {chunks} chunks x {dp} replicas of the embedding"
        raise keys.error("global_bsz", allowed, -(-batch // (chunks * dp)) * chunks * dp)
    return batch // chunks // dp


def _counts(keys: FileKeys, pp: int, blocks: int) -> tuple[int, ...]:
    """Blocks of each stage."""
    if not keys.has("pp_division"):
        each = blocks // pp
        return (each,) * (pp - 1) + (blocks - each * (pp - 1),)
    counts = _list(keys, "pp_division", None, blocks)
    if len(counts) != pp or sum(counts) != blocks or 0 in counts:
        raise keys.error("pp_division", f"{blocks} blocks on {pp} stages, each with some")
    return counts


def _list(
    keys: FileKeys, key: str, count: int | None, most: int, default: int | None = None
) -> tuple[int, ...]:
    """A key's whole numbers, a text with commas or a list.

    Raises:
        InputError: other values, or another number of them than ``count``.
    """
    if not keys.has(key) and default is not None and count is not None:
        return (default,) * count
    value = keys.document.get(key)
    parts = value.split(",") if isinstance(value, str) else value
    parts = [parts] if isinstance(parts, int) else parts
    least = 0 if most == 1 else 1
    numbers = [_number(part) for part in parts] if isinstance(parts, list) else []
    if not numbers or any(n is None or not least <= n <= most for n in numbers):
        allowed = "0 or 1 for each layer" if most == 1 else "a whole number for each, with commas"
        raise keys.error(key, allowed)
    if count is not None and len(numbers) != count:
        allowed = f"{count} values, as {TP} has"
        raise InputError(f"{keys.where}: {key}", f"{len(numbers)} values", allowed)
    return tuple(n for n in numbers if n is not None)


def _number(part: Any) -> int | None:
    text = str(part).strip()
    return int(text) if text.isdecimal() and len(text) < 10 else None
