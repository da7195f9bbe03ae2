"""Ingredients of the items: faults, published rows, samples."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from generators import growth
from generators.catalogue_problems import problem
from generators.random_spaces import random_cluster
from items.costmodel import coverage, published, published_families
from items.planner import galvatron_speed, monotone, planner_mutants
from support import plan_sample
from support.mutant_planners import MUTANTS

from shardwright.api.validation.priced_run import measured_s
from shardwright.api.validation.published_run import qualifies, simulate_run, simulation_arguments
from shardwright.costmodel.explain.accuracy import errors_of
from shardwright.datasets.published.runs import published_runs
from shardwright.spec.errors import InputError


def test_every_fault_is_put_in_and_taken_out_again() -> None:
    assert len({m.name for m in MUTANTS}) == len(MUTANTS) >= 30
    for mutant in MUTANTS:
        plain = mutant.holder.__dict__[mutant.attribute]
        with planner_mutants._broken(mutant):
            assert mutant.holder.__dict__[mutant.attribute] is not plain, mutant.name
        assert mutant.holder.__dict__[mutant.attribute] is plain, mutant.name


def test_published_rows_multiply_to_their_devices() -> None:
    rows = [row for _, row in published._runs()]
    assert len({row["id"] for row in rows}) == len(rows)
    for row in rows:
        size = int(row["tp"]) * int(row["pp"])
        assert int(row["devices"]) % size == 0
        replicas = int(row["devices"]) // size
        assert int(row["global_batch"]) % (replicas * int(row["micro_batch"])) == 0
        assert int(row["layers"]) % (int(row["pp"]) * int(row["vpp"])) == 0
    (anchor,) = (row for row in rows if row["id"] == published.ANCHOR)
    assert anchor["step_time_s"] == "13.75"


def test_a_row_is_judged_by_its_distance() -> None:
    row = {"id": published.ANCHOR, "step_time_s": "10"}
    outcomes = [published._anchor_row("x", row, s).outcome for s in (8.4, 8.6, 11.4, 11.6)]
    assert outcomes == ["MISS", "PASS", "PASS", "MISS"]


def test_each_family_has_rows_and_errors_are_as_defined() -> None:
    runs = [run for run in published_runs() if qualifies(run)]
    counts = [sum(map(family.holds, runs)) for family in published_families.FAMILIES]
    assert min(counts) >= 9
    found = errors_of([(1 + x, 1.0) for x in (-0.5, -0.1, 0.2, 0.3)])
    sizes = (found.signed_median, found.median_ape, found.p90_ape)
    assert sizes == pytest.approx((0.05, 0.25, 0.5))
    priced = [{"published": 2.0, "at_peak": 1.0}, {"published": 4.0, "at_peak": 1.0}]
    assert published_families._fit(priced) == pytest.approx(0.375)
    assert [piece["constant_mfu"] for piece in priced] == pytest.approx([1 / 0.375] * 2)


def test_a_baseline_is_six_flops_a_token_and_parameter_and_the_bubble() -> None:
    (run,) = (run for run in published_runs() if run.id == "nemo2407-0009")
    report = simulate_run(simulation_arguments(run))
    piece = published_families._priced(f"any {run.id}")
    tokens = report.plan.workload.global_batch * report.plan.workload.seq_len
    at_peak_s = 6 * report.plan.model.param_count() * tokens / (989.4e12 * (run.gpus or 0))
    stages, chunks = run.pp or 1, (run.vpp or 1) * report.plan.program.schedule.microbatches
    assert piece["six_n"] == pytest.approx(at_peak_s * (1 + (stages - 1) / chunks), rel=1e-3)
    assert piece["published"] == run.seconds
    no_batch = replace(run, global_batch=None)
    assert no_batch.seconds is None
    asked = measured_s(no_batch, run.global_batch or 0)
    assert asked == pytest.approx(run.seconds)


def test_equal_reasons_are_counted_together() -> None:
    runs = [run for run in published_runs() if run.recompute == "selective:moe"]
    assert runs
    for run in runs:
        with pytest.raises(InputError) as caught:
            simulation_arguments(run)
        assert coverage.reason_of(run, caught.value).startswith("recompute: got selective:moe;")


@pytest.mark.parametrize("seed", range(20))
def test_a_grown_cluster_holds_the_old_one(seed: int) -> None:
    source = random.Random(seed)
    old = random_cluster(source)
    new = growth.grown(old, source)
    assert new.device_count > old.device_count
    assert len(new.levels) == len(old.levels)
    assert new.levels[-1].group_size == new.device_count
    assert new.groups[0].memory == old.groups[0].memory
    if len(old.levels) > 1:
        assert new.groups[0].devices_per_node == old.groups[0].devices_per_node


def test_worse_is_slower_or_nothing() -> None:
    cases = {(None, None): False, (None, 1.0): False, (1.0, None): True, (1.0, 1.0): False,
             (1.0, 0.5): False, (1.0, 1.01): True}  # fmt: skip
    for (less, more), worse in cases.items():
        assert monotone.is_worse({"less_s": less, "more_s": more, "what": "host"}) is worse


def test_plans_to_measure_are_legal_and_ordered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_sample, "RANDOM_PLANS", 40)
    model = tmp_path / "model.yaml"
    model.write_text("layers: 2\nhidden: 64\nheads: 4\nvocab: 512\ntie_embeddings: true\n")
    found = problem(str(model), "local:2", 4, 64, calibration="none")
    plans = plan_sample.predicted_plans(found, 5, 0)
    assert [p.label == plan_sample.TOP for p in plans] == [True, *[False] * 5]
    assert not any(p.plan.check() for p in plans)
    assert all(a.step_time_s <= b.step_time_s for a, b in pairwise(plans[1:]))
    again = plan_sample.predicted_plans(found, 5, 0)
    assert [p.plan.hash for p in plans] == [p.plan.hash for p in again]
    assert all(plan_sample.in_words(p.plan) for p in plans)


def test_galvatron_is_beaten_where_costs_are_the_same() -> None:
    def outcome(ours_s: float, rate: float, version: str) -> str:
        ours = {"seconds": ours_s, "samples_per_s": rate}
        theirs = {"seconds": 30.0, "samples_per_s": 14.0, "version": version}
        return galvatron_speed._row(36, [{"ours": ours, "theirs": theirs}] * 3).outcome

    assert outcome(0.2, 14.0, "main") == outcome(0.2, 13.0, "2.4.0") == "PASS"
    assert outcome(0.2, 13.9, "main") == outcome(0.4, 14.0, "2.4.0") == "MISS"


def test_without_galvatron_nothing_is_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(galvatron_speed.CHECKOUT, raising=False)
    monkeypatch.setattr(galvatron_speed, "PACKAGE", "--no-such-option")
    peer, why = galvatron_speed._peer(tmp_path)
    assert peer is None
    assert "could not be installed" in why
