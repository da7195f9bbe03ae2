"""Coverage of a search under Galvatron's costs, and plans left out."""

from __future__ import annotations

from typing import Any

from ...costmodel.galvatron.job import GalvatronJob
from .options import MOST_DEGREE, Legal, options_of
from .search import shapes_of
from .translate import layer_strategy


def space(job: GalvatronJob, legal: Legal) -> dict[str, list[Any]]:
    """Axes with their values in the space, keyed as simulate's flags."""
    axes: dict[str, set[Any]] = {
        "vpp": {1}, "schedule": {"1f1b"}, "cp": {1}, "ep": {1}, "etp": {1}, "pp": set(),
        "tp": set(), "dp": set(), "sp": set(), "shard": set(), "recompute": set(),
        "micro_batch": set(),
    }  # fmt: skip
    for microbatches, stages in shapes_of(job):
        options = options_of(job, microbatches, stages, legal)
        if not options.strategies or not options.ends:
            continue
        ranks = job.devices // stages
        axes["pp"].add(stages)
        ends = {e.strategy for e in options.ends}
        axes["micro_batch"] |= {job.samples(microbatches, e.dp) for e in ends}
        for strategy in (*options.strategies, *ends):
            layer = layer_strategy(strategy)
            axes["tp"].add(layer.tp)
            axes["dp"].add(strategy.dp)
            axes["sp"].add(layer.sequence_parallel)
            axes["shard"].add(layer.shard.level_name(layer.state_ranks(ranks)))
            axes["recompute"].add(layer.recompute)
    return {axis: sorted(values) for axis, values in sorted(axes.items())}


def left_out(job: GalvatronJob) -> list[dict[str, str]]:
    """Plans outside the space, each with its rule or proof."""
    missing = [str(p) for p in (2, 4, 8) if p <= job.devices and p not in job.profile.machine.p2p]
    rows = [
        ("plans of tensor parallelism alone", "a proof: each is also one of tensor parallelism "
         "and Ulysses with the same buffer"),
        ("degrees that are no powers of two, or above " + str(MOST_DEGREE),
         "Galvatron's space: its profiles hold no others"),
        ("stages of uneven size", "Galvatron's formula leaves middle stages out of the steady "
         "state, so a slow one would hide there"),
        ("replicas that do not divide a micro-batch", "Galvatron would round their samples down "
         "and train on fewer than the batch"),
        ("context, expert and interleaved parallelism", "its costs do not speak of them"),
        ("layers of one type and degree apart in a stage", "a rule: they lie together, so that "
         "degrees change least"),
    ]  # fmt: skip
    if missing:
        rows.append((f"pp {', '.join(missing)}", "the profile has no bandwidth between so many"))
    return [{"what": what, "why": why} for what, why in rows]
