"""Runs of nested degrees on eight ranks as two nodes of two pairs, held to a single process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from checks.lowering_check import executor_stack
from checks.run_checks import run_verified
from generators.plan_cases import Case, Sizes, cpu_cluster
from ranks.rank_pools import RankPool

from shardwright.api.execution.sent_bytes import sent_beside_priced
from shardwright.executor.reference.verify import bounds_of
from shardwright.planner.space.shard_levels import shardings
from shardwright.spec.cluster.cluster_spec import ClusterSpec, LinkLevel
from shardwright.spec.plan.plan import Plan
from shardwright.spec.strategy import LayerStrategy, Sharding
from shardwright.spec.technique_values import with_value
from shardwright.spec.techniques.quantized_communication import NAME, from_word

RANKS = 8
COMBINATIONS = tuple(s.level_name(RANKS) for s in shardings(RANKS, (2, 4)) if s != Sharding())
"""Every nested combination of degrees 1, 2, 4 and 8 that shards something."""


def tiers(ranks: int = RANKS) -> ClusterSpec:
    """Cores as nodes of half the ranks each, of pairs."""
    plain = cpu_cluster(ranks)
    group = replace(plain.groups[0], nodes=2, devices_per_node=ranks // 2)
    sizes = (("intra_pair", 2), ("intra_node", ranks // 2), ("intra_rack", ranks))
    levels = tuple(
        LinkLevel(level=name, group_size=size, fabric="loopback")  # type: ignore[arg-type]
        for name, size in sizes
        if name != "intra_pair" or ranks > 4
    )
    return replace(plain, groups=(group,), levels=levels)


class Nested(NamedTuple):
    """A small model's plan of two micro-batches, its blocks with a word of fewer bits."""

    text: str
    word: str = "none"
    ranks: int = RANKS

    def plan(self) -> Plan:
        """The plan, on cores as two nodes."""
        plain = LayerStrategy(shard=Sharding.from_text(self.text, self.ranks))
        block = plain if self.is_exact else with_value(plain, NAME, from_word(self.word))
        case = Case(
            name=self.text,
            ranks=self.ranks,
            sizes=Sizes(blocks=2),
            strategies=[plain, block, block, plain],
            global_batch=2 * self.ranks,
            micro_batch=self.ranks,
        )
        return replace(case.plan(), cluster=tiers(self.ranks))

    @property
    def is_exact(self) -> bool:
        """True if all travels as it is."""
        return self.word == "none"


def run_nested(pool: RankPool, nested: Nested, steps: int) -> dict[str, Any]:
    """What differs from a single process, and from the priced bytes of each link level.

    Returns:
        ``losses``; ``verify`` of an exact run, with ``bounds`` of it; and ``sent``: bytes by level,
        measured and predicted.
    """
    plan = nested.plan()
    settings = {"steps": steps, "follow_bytes": True, "verify": nested.is_exact}
    result = run_verified(pool, plan, **settings)
    bounds, sent = bounds_of(plan), result["measured"]["sent_bytes"]
    return {
        "losses": result["measured"]["losses"],
        "verify": result.get("verify"),
        "bounds": {"grad": bounds.gradient, "loss": bounds.loss},
        "sent": sent_beside_priced(plan, executor_stack(flash=True), sent),
    }


def faults(found: dict[str, Any]) -> list[str]:
    """What is beyond the norm or not as priced."""
    wrong = []
    for key, bound in found["bounds"].items():
        if found["verify"] and not found["verify"][f"max_rel_{key}_diff"] <= bound:
            wrong.append(f"{key} {found['verify'][f'max_rel_{key}_diff']:.1e}")
    for level, sides in found["sent"].items():
        if sides["predicted"] != sides["measured"]:
            wrong.append(f"{level}: priced {sides['predicted']}, sent {sides['measured']}")
    return wrong if found["sent"] else [*wrong, "nothing was sent"]
