"""Write a plan as Galvatron's JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ....spec.codec import dump_pretty
from ....spec.model.model_spec import BlockLayer
from ....spec.strategy import LayerStrategy
from ..exportable import ExportablePlan
from .launch import CONFIG_FILE
from .read import TP

SCHEDULES = {"1f1b": "pipedream_flush", "gpipe": "gpipe"}
DEFAULTS = {"zero0": "ddp", "zero2": "zero2"}


def write(plan: ExportablePlan) -> Mapping[str, str]:
    """One file of strategies by layer."""
    taken = plan.plan.program.layer_strategies()
    pairs = list(zip(plan.layers, taken, strict=True))
    blocks = [strategy for layer, strategy in pairs if isinstance(layer, BlockLayer)]
    ends = next(strategy for layer, strategy in pairs if not isinstance(layer, BlockLayer))
    ranks = plan.stage_ranks
    document: dict[str, Any] = {
        "pp_deg": plan.pp,
        TP: _text(s.tp for s in blocks),
        "cp_sizes_enc": _text(s.cp for s in blocks),
        "tp_consecutive_flags": _text(1 for _ in blocks),
        "dp_types_enc": _text(_shards_parameters(s, ranks) for s in blocks),
        "use_sp": _text(int(s.ulysses) for s in blocks),
        "checkpoint": _text(int(s.recompute == "full") for s in blocks),
        "global_bsz": plan.workload.global_batch,
        "chunks": plan.microbatches,
        "pp_division": _text(plan.chunk_blocks),
        "pipeline_type": SCHEDULES.get(plan.kind, "pipedream_flush"),
        "default_dp_type": default_type(taken, ranks),
        "vtp": ends.tp,
        "vsp": int(ends.ulysses),
        "vcp": ends.cp,
        "embed_sdp": _shards_parameters(ends, ranks),
        "vocab_sdp": _shards_parameters(ends, ranks),
        "world_size": plan.devices,
    }
    if plan.has_experts:
        document["ep_sizes_enc"] = _text(s.ep for s in blocks)
        document["tp_of_ep_sizes_enc"] = _text(s.etp for s in blocks)
    return {CONFIG_FILE: dump_pretty(document)}


def default_type(taken: Iterable[LayerStrategy], ranks: int) -> str:
    """Sharding of the layers that do not say zero3, by the most of them."""
    words = [shard_word(strategy, ranks) for strategy in taken]
    found = [word for word in words if word in DEFAULTS]
    return DEFAULTS[max(DEFAULTS, key=found.count)] if found else "zero2"


def shard_word(strategy: LayerStrategy, ranks: int) -> str:
    """A strategy's sharding level, or nothing where no rank has the same weights."""
    replicas = strategy.state_ranks(ranks)
    return strategy.shard.level_name(replicas) if replicas > 1 else ""


def _shards_parameters(strategy: LayerStrategy, ranks: int) -> int:
    return int(shard_word(strategy, ranks) == "zero3")


def _text(values: Iterable[int]) -> str:
    return ",".join(map(str, values))
