"""A residual refitted to timed programs: prices, refusals, storage, interval, doctor."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import shardwright as sw
from shardwright.api.doctor.document import doctor_document
from shardwright.costmodel.calibration.profile_residual import refitted_residual, with_residual
from shardwright.costmodel.kernel_latency.profile_table import KernelTable
from shardwright.costmodel.kernel_latency.roofline import kernel_seconds
from shardwright.costmodel.pricing.kernel_pricer import KernelPricer
from shardwright.costmodel.pricing.machine import Machine
from shardwright.datasets.catalogue.device import device
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.profiler.store.profiles import fingerprint, newest_profile, save_profile
from shardwright.spec.cluster.machine_profile import KernelRow, MachineProfile
from shardwright.spec.codec import canonical_json
from shardwright.spec.errors import InputError
from shardwright.spec.report.work_items import Kernel

RANDOM = np.random.default_rng(5)
SLOWER = 2.5


def _product(m: int, k: int, n: int) -> Kernel:
    return Kernel("matmul", (m, k, n), "fp32", 2 * m * k * n, 4 * (m * k + k * n + m * n))


def _true_s(kernel: Kernel) -> float:
    """Slower than the roofline, small sums more so."""
    base_s = kernel_seconds(kernel, device("cpu"))
    return base_s * SLOWER * (1 + 8 / math.sqrt(kernel.shape[1]))


def _row(kernel: Kernel) -> KernelRow:
    return KernelRow(**kernel._asdict(), time_s=_true_s(kernel))


TIMED = [_product(*(int(2**x) for x in RANDOM.uniform(5, 11, 3))) for _ in range(60)]


def _profile(ranks: int = 1) -> MachineProfile:
    return MachineProfile(
        fingerprint=fingerprint(), machine={}, ranks=ranks, measured_at="2026-01-01T00:00:00Z",
        duration_s=1.0, kernels=tuple(map(_row, TIMED)),
    )  # fmt: skip


PROFILE = with_residual(_profile())


def _pricer(profile: MachineProfile) -> KernelPricer:
    return KernelPricer(Machine(parse_cluster("local:1").cluster, profile), 3)


def test_what_was_not_timed_is_learned_and_what_was_keeps_its_time() -> None:
    pricer = _pricer(PROFILE)
    new = [_product(*(int(2**x) for x in RANDOM.uniform(6, 10, 3))) for _ in range(20)]
    found = [pricer.latency(kernel) for kernel in new]
    assert {latency.source for latency in found} == {"learned"}
    ratios = [x.time_s / _true_s(kernel) for x, kernel in zip(found, new, strict=True)]
    assert np.mean(np.abs(np.array(ratios) - 1)) < 0.05
    slower = _pricer(replace(PROFILE, kernel_slowdown=1.5)).latency(new[0])
    assert slower.time_s == pytest.approx(1.5 * found[0].time_s)
    other = Kernel("add", (4096,), "fp32", 0, 3 * 4 * 4096)
    assert pricer.latency(other).source == "analytic"  # no pass over memory was timed


def test_sizes_that_span_too_large_a_grid_are_left_to_the_residual() -> None:
    with pytest.raises(InputError, match="grid"):
        KernelTable(_profile())
    assert KernelTable(PROFILE).price(TIMED[0]) is None
    assert PROFILE.residual is not None
    assert PROFILE.residual.prices == ("product",)


def test_equal_rows_give_equal_bytes_and_few_give_none() -> None:
    again = with_residual(_profile())
    assert canonical_json(again) == canonical_json(PROFILE)
    few = replace(_profile(), kernels=_profile().kernels[:9])
    assert with_residual(few) == few


def test_a_row_that_is_no_time_is_refused_by_its_number() -> None:
    rows = list(_profile().kernels)
    rows[7] = replace(rows[7], time_s=1e6)
    with pytest.raises(InputError, match=r"kernels.7.time_s"):
        refitted_residual(replace(_profile(), kernels=tuple(rows)))


def test_doctor_and_the_interval_say_learned_of_a_stored_profile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))  # with no newer profile of another test
    save_profile(PROFILE)
    assert newest_profile(1) == PROFILE
    document = doctor_document("shardwright-demo", "local:1")
    terms = document["prices"][0]["terms"]
    assert terms["matmul"]["learned"] > 0.9 * terms["matmul"]["seconds"]
    assert "60 programs" in document["learned"]
    assert document["calibration"]["residual"]["prices"] == ("product",)
    sizes = {"global_batch": 4, "seq_len": 64}
    found, plain = (
        sw.simulate("shardwright-demo", "local:1", calibration=name, **sizes)
        for name in (None, "none")
    )
    assert found.report.source_share["learned"] > 0.5
    ends = [x.prediction.step_time_interval_s for x in (found, plain)]
    widths = [(high - low) / (high + low) for low, high in ends]
    assert widths[0] < widths[1]
