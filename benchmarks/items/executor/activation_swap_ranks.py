"""Swapped activations on four ranks: kernels, copies, gradients and bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from checks.lowering_check import compare, executor_stack
from checks.run_checks import check_run
from generators.plan_cases import Case, Sizes, sharded
from harness.shapes import EVERYTHING, Evidence, Item, Table, judged
from harness.work import Work
from ranks.rank_pools import RankPool

from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.spec.model.feed_forward import FeedForward, Moe
from shardwright.spec.model.layers import BlockLayer
from shardwright.spec.model.mixers import LatentAttention
from shardwright.spec.model.model_spec import LayerRun, ModelSpec
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique_values import with_value
from shardwright.spec.techniques.activation_swap import NAME, ActivationSwap

RANKS, STEPS = 4, 2
WITHIN = 0.005
LATENT = LatentAttention(heads=4, query_rank=24, kv_rank=16, nope_dim=16, rope_dim=8, value_dim=16)
EXPERTS = Moe(experts=4, topk=2, ffn=48)
TP2 = LayerStrategy(tp=2, sequence_parallel="megatron")
ULYSSES = LayerStrategy(tp=2, sequence_parallel="ulysses")


@dataclass(frozen=True, kw_only=True)
class OtherParts(Sizes):
    """A small decoder with another mixer, or another feed-forward layer."""

    latent: bool = False
    experts: bool = False

    def model(self) -> ModelSpec:
        """The decoder with its parts exchanged."""
        plain = super().model()
        (tower,) = plain.towers
        runs = tuple(replace(run, layer=self._layer(run.layer)) for run in tower.layers)
        return replace(plain, towers=(replace(tower, layers=runs),))

    def _layer(self, layer: LayerRun | Any) -> Any:
        if not isinstance(layer, BlockLayer):
            return layer
        feed: FeedForward = EXPERTS if self.experts else layer.mlp  # type: ignore[assignment]
        return replace(layer, attention=LATENT if self.latent else layer.attention, mlp=feed)


def swapped(strategy: LayerStrategy, share: float) -> LayerStrategy:
    """A strategy whose block swaps a share of its tokens."""
    return with_value(strategy, NAME, ActivationSwap(share=share))


def mixed(strategy: LayerStrategy, *shares: float) -> list[LayerStrategy]:
    """Blocks of these shares between an embedding and a head."""
    return [strategy, *(swapped(strategy, share) for share in shares), strategy]


BASE = Case(name="", sizes=Sizes(blocks=2, hidden=64, ffn=160, vocab=512), seq_len=128, ranks=RANKS)
PIPELINE = replace(BASE, stages=2, micro_batch=2)
CASES = (
    *(replace(BASE, name=f"zero3, {a:g}", strategies=swapped(sharded("zero3", 4), a))
      for a in (0.0, 0.25, 0.5, 0.75, 1.0)),
    replace(BASE, name="zero3, 0.25 and 1", strategies=mixed(sharded("zero3", 4), 0.25, 1.0)),
    replace(BASE, name="tp 2 + sp, 0.5", strategies=swapped(TP2, 0.5)),
    replace(BASE, name="tp 2, 0.75", strategies=swapped(LayerStrategy(tp=2), 0.75)),
    replace(BASE, name="cp 2, 0.5", strategies=swapped(LayerStrategy(cp=2), 0.5)),
    replace(BASE, name="cp 2, latent attention, 0.25",
            strategies=swapped(LayerStrategy(cp=2), 0.25),
            sizes=OtherParts(blocks=2, hidden=64, ffn=160, vocab=512, latent=True)),
    replace(BASE, name="Ulysses 2, 0.25",
            strategies=mixed(ULYSSES, 0.25, 0.0)),
    replace(BASE, name="Ulysses 2, cp 2, 0.75",
            strategies=swapped(replace(ULYSSES, cp=2), 0.75)),
    replace(PIPELINE, name="pp 2, zero3, 0.75", strategies=swapped(sharded("zero3", 2), 0.75)),
    replace(PIPELINE, name="pp 2, tp 2 + sp, 1", strategies=swapped(TP2, 1.0)),
    replace(BASE, name="latent attention, tp 2 + sp, 0.5", strategies=swapped(TP2, 0.5),
            sizes=OtherParts(blocks=2, hidden=64, ffn=160, vocab=512, latent=True)),
    replace(BASE, name="experts, zero3, 1", strategies=swapped(sharded("zero3", 4), 1.0),
            sizes=OtherParts(blocks=2, hidden=64, ffn=160, vocab=512, experts=True)),
)  # fmt: skip


def run(work: Work) -> Evidence:
    """Record, train and follow every plan on one pool of ranks."""
    cases = CASES if not work.quick else CASES[2:3]
    with RankPool(RANKS) as pool:
        found = work.pieces([case.name for case in cases], lambda name: _checked(pool, name))
    faults = [f"{one['name']}: {one['fault']}" for one in found if one["fault"]]
    peaks = [one["peak"] for one in found if not one["fault"]]
    hosts = [one["host"] for one in found if not one["fault"]]
    worst = max(map(abs, peaks), default=1.0)
    lines = [
        (one["name"], one["fault"] or "equal", f"{one['peak']:+.2%}", f"{one['host']:+.2%}")
        for one in found
    ]
    return Evidence(
        rows=[
            judged(
                "plans whose kernels, copies and collectives are the priced ones, and whose "
                "losses and gradients are the reference's",
                f"{len(found) - len(faults)} of {len(found)}" + "".join(f"; {f}" for f in faults),
                f"all {len(found)}", not faults, plans=len(found), faulty=len(faults),
            ),
            judged(
                "largest error of the peak of live bytes", f"{worst:.2%}", f"≤ {WITHIN:.1%}",
                worst <= WITHIN, worst=worst,
            ),
            judged(
                "plans whose bytes of the host are the priced ones",
                f"{sum(not host for host in hosts)} of {len(hosts)}", f"all {len(hosts)}",
                not any(hosts), plans=len(hosts),
            ),
        ],
        tables=[
            Table(
                title="four ranks",
                columns=("plan", "against price and reference", "peak of live bytes", "host"),
                rows=lines,
            )
        ],
    )  # fmt: skip


def _checked(pool: RankPool, name: str) -> dict[str, Any]:
    case = next(one for one in CASES if one.name == name)
    plan = case.plan()
    fault, peak, host = "", 0.0, 0.0
    payload = {"plan": plan.to_document(), "technique": NAME}
    try:
        for record in pool.run("toys.technique_jobs:record", payload):
            recorded = compare(case, plan, record)
            if recorded.kernels_apart or recorded.collectives_apart:
                apart = {**recorded.kernels_apart, **recorded.collectives_apart}
                fault = f"{len(apart)} kinds of work differ, such as {next(iter(apart.items()))}"
        check_run(
            pool, plan, "toys.technique_jobs:train_with",
            technique=NAME, steps=STEPS, random_tokens=True, follow_bytes=False,
        )  # fmt: skip
        peak, host = _bytes(pool, case)
    except AssertionError as error:
        fault = fault or f"not the reference's: {str(error)[:80]}"
    return {"name": name, "fault": fault, "peak": peak, "host": host}


def _bytes(pool: RankPool, case: Case) -> tuple[float, float]:
    """Largest errors of the peak of live bytes, and of the host's bytes."""
    plan, software = case.plan(), executor_stack(case.flash)
    simulation = Simulator.for_plan(plan, Machine(plan.cluster), software).run(plan)
    if simulation is None:
        raise RuntimeError("a simulation without a limit ends")
    rows = simulation.memory
    device, host = rows[::2], rows[1::2]  # a stage has a row of each tier
    payload = {"plan": plan.to_document(), "flash": case.flash, "steps": 3, "fused": False}
    peaks, hosts = [], []
    for traced in pool.run("ranks.rank_jobs:live_bytes", payload):
        stage = traced["stage"]
        peaks.append(device[stage].allocated_bytes / min(traced["peak_bytes"]) - 1)
        hosts.append(host[stage].allocated_bytes / traced["host_bytes"] - 1)
    return max(peaks, key=abs), max(hosts, key=abs)


ITEM = Item(
    name="activation_swap_ranks",
    shows="Swapped activations on four ranks: work, gradients and bytes as priced.",
    target="16 plans: work and host bytes equal, gradients the reference's, peaks within 0.5 %.",
    run=run,
    reads=(*EVERYTHING, "tests/support"),
)
