"""Keys of what-if questions, with kind, meaning and an example.

Command line, service and Python share this list. Nothing slow is imported here: the help of the
command line shows it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from ..errors import InputError, nearest_name
from .quantities import QuantityKind

Scope = Literal["link", "device", "kind", "count", "workload", "stack"]
PER_GROUP: tuple[Scope, ...] = ("kind", "count")
"""Scopes whose keys name the group where a cluster has several."""
LINK_LEVELS = ("intra_pair", "intra_node", "inter_node", "intra_rack", "inter_rack", "inter_zone")
"""``inter_node`` is the level just above the node."""


class WhatIfKey(NamedTuple):
    """One key: path, scope, kind of its values, meaning, example."""

    path: str
    scope: Scope
    kind: QuantityKind | Literal["word"]
    meaning: str
    example: str


WHAT_IF_KEYS = (
    WhatIfKey("LEVEL.bandwidth", "link", "bytes_per_s",
              "bytes/s of a device's link, one direction", "2x"),
    WhatIfKey("LEVEL.latency", "link", "seconds",
              "seconds of a step of small messages; all set-up in proportion", "5us"),
    WhatIfKey("device.hbm", "device", "bytes", "memory a device, context included", "40GiB"),
    WhatIfKey("device.bandwidth", "device", "bytes_per_s", "of the device's memory", "+20%"),
    WhatIfKey("device.flops", "device", "flops_per_s",
              "dense peak in the format computed in; others in proportion", "1.5x"),
    WhatIfKey("device.launch", "device", "seconds", "least seconds of a kernel", "1us"),
    WhatIfKey("device", "kind", "word",
              "another device of the catalogue, as many in their usual nodes", "B200"),
    WhatIfKey("nodes", "count", "count", "nodes of the cluster", "4"),
    WhatIfKey("devices", "count", "count", "devices in whole nodes, or part of one", "32"),
    WhatIfKey("devices_per_node", "count", "count", "devices of a node", "4"),
    WhatIfKey("global_batch", "workload", "count", "samples a step", "1024"),
    WhatIfKey("seq_len", "workload", "count", "tokens of a sample", "2x"),
    WhatIfKey("dtype", "workload", "word", "as --dtype", "fp8"),
    WhatIfKey(
        "communication_dtype", "workload", "word", "as --communication-dtype", "bf16"
    ),
    WhatIfKey("grad_dtype", "workload", "word", "as --grad-dtype", "bf16"),
    WhatIfKey("master_dtype", "workload", "word", "as --master-dtype", "none"),
    WhatIfKey("moment_dtype", "workload", "word", "as --moment-dtype", "bf16"),
    WhatIfKey("optimizer", "workload", "word", "as --optimizer", "adamw8bit"),
    WhatIfKey("expert_load", "workload", "word", "as --expert-load; a trace with --set alone",
              "power:1"),
    WhatIfKey("lengths", "workload", "word", "one: each sequence is one document", "one"),
    WhatIfKey("stack", "stack", "word", "training software, as --stack", "megatron"),
    WhatIfKey("stack.attention", "stack", "word", "as --attention", "unfused"),
    WhatIfKey("stack.overlap", "stack", "word", "as --overlap", "all"),
    WhatIfKey("stack.slowdown", "stack", "number",
              "factor on work that shares the device, 1 to 2", "1.2"),
    WhatIfKey("stack.launch", "stack", "seconds", "host seconds a kernel", "0.5x"),
)  # fmt: skip


def keys_text() -> list[tuple[str, str]]:
    """Each key with an example, and its meaning, for help texts."""
    rows = [(f"{key.path}={key.example}", key.meaning) for key in WHAT_IF_KEYS]
    return [*rows, ("LEVEL", "that the cluster has, of " + ", ".join(LINK_LEVELS))]


def what_if_key(path: str, where: str, levels: tuple[str, ...], groups: tuple[str, ...]) -> str:
    """The path as listed; ``-`` for ``_`` and capital letters are forgiven.

    Args:
        path: as typed.
        where: name in an error, such as ``--set``.
        levels: link levels of the cluster.
        groups: device groups of the cluster; of several, ``GROUP.nodes`` and ``GROUP.device``.

    Raises:
        InputError: no such key; the nearest ones are given.
    """
    paths = known_paths(levels, groups)
    folded = path.strip().casefold().replace("-", "_")
    for name in paths:
        if name.casefold().replace("-", "_") == folded:
            return name
    near = nearest_name(folded, paths) or _by_last_word(folded, paths)
    raise InputError(f"{where} {path}".strip(), "an unknown key", ", ".join(paths), near)


def known_paths(levels: tuple[str, ...], groups: tuple[str, ...]) -> list[str]:
    """All keys of a cluster with these levels and groups."""
    paths = []
    for key in WHAT_IF_KEYS:
        if key.scope == "link":
            paths += [key.path.replace("LEVEL", level) for level in levels]
        elif key.scope in PER_GROUP and len(groups) > 1:
            paths += [f"{group}.{key.path}" for group in groups]
        else:
            paths.append(key.path)
    return paths


def entry_of(path: str) -> WhatIfKey:
    """The list's entry for a known path."""
    head, _, last = path.rpartition(".")
    for key in WHAT_IF_KEYS:
        if key.path == path or (key.scope == "link" and key.path == f"LEVEL.{last}"
                                and head in LINK_LEVELS):  # fmt: skip
            return key
    return next(key for key in WHAT_IF_KEYS if key.scope in PER_GROUP and key.path == last)


SYNONYMS = {
    "memory": "device.hbm",
    "memory_gib": "device.hbm",
    "hbm": "device.hbm",
    "vram": "device.hbm",
    "flops": "device.flops",
    "tflops": "device.flops",
    "batch": "global_batch",
    "batch_size": "global_batch",
    "gpus": "devices",
    "gpu": "device",
    "accelerator": "device",
    "hardware": "device",
    "sequence": "seq_len",
    "context": "seq_len",
    "precision": "dtype",
    "overlap": "stack.overlap",
    "slowdown": "stack.slowdown",
    "attention": "stack.attention",
    "network.bandwidth": "inter_node.bandwidth",
    "network": "inter_node.bandwidth",
    "interconnect": "inter_node.bandwidth",
    "nvlink": "intra_node.bandwidth",
    "bandwidth": "inter_node.bandwidth",
    "latency": "inter_node.latency",
}
"""Other names that people use for keys."""


def _by_last_word(folded: str, paths: list[str]) -> str:
    key = SYNONYMS.get(folded) or SYNONYMS.get(folded.rpartition(".")[2], "")
    if key in paths:
        return key
    return ", ".join(name for name in paths if name.endswith(key.rpartition(".")[2]) and key)
