"""What a search under Galvatron's costs covered, in simulate's words, and what it left out."""

from __future__ import annotations

from typing import Any

from ...costmodel.galvatron.job import GalvatronJob
from .options import MOST_DEGREE, Legal, options_of
from .search import shapes_of
from .translate import layer_strategy


def space(job: GalvatronJob, legal: Legal) -> dict[str, list[Any]]:
    """Axis to the values that some plan of the space has, keyed as simulate's flags.

    Args:
        job: the question.
        legal: whether layers, or embedding and head, may be split so.
    """
    found: dict[str, set[Any]] = {
        "vpp": {1}, "schedule": {"1f1b"}, "cp": {1}, "ep": {1}, "etp": {1}, "pp": set(),
        "tp": set(), "dp": set(), "sp": set(), "shard": set(), "recompute": set(),
        "micro_batch": set(),
    }  # fmt: skip
    for microbatches, stages in shapes_of(job):
        options = options_of(job, microbatches, stages, legal)
        if not options.strategies or not options.ends:
            continue
        ranks = job.devices // stages
        found["pp"].add(stages)
        ends = {e.strategy for e in options.ends}
        found["micro_batch"] |= {job.samples(microbatches, e.dp) for e in ends}
        for strategy in (*options.strategies, *ends):
            ours = layer_strategy(strategy)
            found["tp"].add(ours.tp)
            found["dp"].add(strategy.dp)
            found["sp"].add(ours.sequence_parallel)
            found["shard"].add(ours.shard.level_name(ours.state_ranks(ranks)))
            found["recompute"].add(ours.recompute)
    return {axis: sorted(values) for axis, values in sorted(found.items())}


def left_out(job: GalvatronJob) -> list[dict[str, str]]:
    """What no plan of the space has, with its rule or proof."""
    missing = [str(p) for p in (2, 4, 8) if p <= job.devices and p not in job.profile.machine.p2p]
    found = [
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
        found.append((f"pp {', '.join(missing)}", "the profile has no bandwidth between so many"))
    return [{"what": what, "why": why} for what, why in found]
