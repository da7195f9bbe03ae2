"""Price of checkpoints: bytes by hand, replicas, measured rates, what is said of a plan."""

from __future__ import annotations

from dataclasses import replace

import pytest
from generators.plan_cases import LLAMA, PLAIN, Case, Sizes, sharded
from kernel_doubles.device_profiles import device_profile

from shardwright.api.planning.checkpoint_price import with_checkpoint
from shardwright.api.planning.report import simulate_plan
from shardwright.api.views.report_text import checkpoint_text
from shardwright.costmodel.checkpoint import StorageRates, stage_bytes
from shardwright.costmodel.pricing.machine import Machine
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.cluster.machine_profile import CopyKind, CopyRow
from shardwright.spec.report.checkpoint_price import CheckpointPrice
from shardwright.spec.strategy import LayerStrategy

WEIGHT_AND_MOMENTS = 12
"""Bytes in fp32 with AdamW."""
RATES: dict[CopyKind, float] = {
    "checkpoint_copy": 4e9,
    "checkpoint_digest": 1e9,
    "checkpoint_write": 1e8,
    "checkpoint_read": 2e8,
}
WIDE = Sizes(hidden=128, vocab=2048)


def price(case: Case, measured: bool = False) -> CheckpointPrice:
    profile = None
    if measured:
        rows = tuple(
            CopyRow(kind=kind, payload_bytes=size, time_s=size / rate)
            for kind, rate in RATES.items()
            for size in (1, 2**30)
        )
        profile = replace(device_profile(case.ranks, "cpu"), copies=rows)
    simulated = simulate_plan(case.plan(), stack("shardwright"), profile, ())
    found = with_checkpoint(simulated).report.prediction.checkpoint
    assert found is not None
    return found


@pytest.mark.parametrize(
    "case",
    [
        Case(name="dp"),
        Case(name="zero3", strategies=sharded("zero3", 4)),
        Case(name="tp", strategies=LayerStrategy(tp=2, sequence_parallel="megatron")),
        Case(name="pp", stages=2, boundaries=(3,)),
        Case(name="tied over stages", sizes=Sizes(tied=True), stages=2, boundaries=(3,)),
    ],
    ids=lambda case: case.name,
)
def test_every_weight_is_saved_once(case: Case) -> None:
    plan = case.plan()
    whole = plan.model.param_count(plan.workload.seq_len) * WEIGHT_AND_MOMENTS
    assert sum(row.unique for row in stage_bytes(plan)) == whole
    assert price(case).bytes == whole


def test_replicas_share_the_writing_and_need_all_of_it() -> None:
    replicas, shards = Case(name="dp"), Case(name="zero3", strategies=sharded("zero3", 4))
    (whole,), (part,) = stage_bytes(replicas.plan()), stage_bytes(shards.plan())
    assert whole.local == whole.unique
    assert part.local == pytest.approx(part.unique / 4)
    assert price(replicas).rank_bytes == price(shards).rank_bytes
    assert price(replicas).largest_over_mean == pytest.approx(1.0, rel=1e-3)
    assert price(replicas, measured=True).load_s > price(shards, measured=True).load_s


def test_uneven_stages_write_unevenly() -> None:
    case = Case(name="pp", sizes=WIDE, stages=2, boundaries=(1,), kind="1f1b")
    rows = stage_bytes(case.plan())
    heaviest = max(row.unique / row.ranks for row in rows)
    mean = sum(row.unique for row in rows) / 4
    assert price(case).largest_over_mean == pytest.approx(heaviest / mean, rel=1e-3)


def test_measured_rates_are_those_of_the_formulas() -> None:
    case = Case(name="dp", sizes=WIDE)
    found = price(case, measured=True)
    assert found.source == "measured"
    assert found.stall_s == pytest.approx(found.rank_bytes / 4e9, rel=0.01)
    assert found.end_to_end_s - found.stall_s == pytest.approx(found.bytes / 1e8, rel=0.01)
    alone = price(Case(name="alone", sizes=WIDE, ranks=1), measured=True)
    assert alone.end_to_end_s - alone.stall_s == pytest.approx(
        alone.bytes / 1e8 + alone.bytes / 1e9, rel=0.01
    )


def test_without_a_profile_the_catalogue_is_named() -> None:
    plan = Case(name="dp").plan()
    simulated = with_checkpoint(simulate_plan(plan, stack("shardwright"), None, ()))
    notes = [note for note in simulated.report.assumptions if note.path == "checkpoint.storage"]
    assert "plan profile --checkpoint" in notes[0].why
    document = simulated.report.prediction.to_document()
    assert document["checkpoint"]["source"] == "analytic"
    text = checkpoint_text(price(Case(name="dp", sizes=LLAMA, strategies=PLAIN)))
    assert "a step waits" in text
    rates = StorageRates(Machine(plan.cluster))
    assert rates.write_s(2 * 10**9) == pytest.approx(2 * rates.write_s(10**9))


def test_a_prediction_without_a_folder_has_none() -> None:
    simulated = simulate_plan(Case(name="dp").plan(), stack("shardwright"), None, ())
    assert "checkpoint" not in simulated.report.prediction.to_document()
