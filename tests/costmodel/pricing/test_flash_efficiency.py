"""Rates of flash attention: against measured kernels, and longer never takes less."""

from __future__ import annotations

from itertools import pairwise

import pytest

from shardwright.costmodel.kernel_latency.flash_efficiency import (
    BACKWARD,
    CAUSAL,
    UNMEASURED,
    flash_share,
)
from shardwright.costmodel.kernel_latency.roofline import kernel_seconds, peak_flops_per_s
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.pricing.pricer import Pricer
from shardwright.datasets.catalogue.device import device, devices
from shardwright.datasets.catalogue.stack import stack
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.spec.report.work_items import FLASH, FLASH_BAND, FLASH_FULL, Kernel


def seconds(name: str, tokens: int, batch: int = 4, heads: int = 32, op: str = FLASH) -> float:
    """A plain kernel of head width 128."""
    shape = (batch, heads, heads, tokens, 128)
    flops = 4 * batch * heads * tokens * tokens * 128
    traffic = 8 * batch * heads * tokens * 128
    return kernel_seconds(Kernel(op, shape, "bf16", flops, traffic), device(name))


@pytest.mark.parametrize(
    ("name", "tokens", "share"),
    [
        ("A100", 1024, 0.312),
        ("A100", 4096, 0.426),
        ("H100", 2048, 0.473),
        ("H100", 8192, 0.586),
        ("B200", 4096, 0.486),
    ],
)
def test_measured_kernels(name: str, tokens: int, share: float) -> None:
    """Medians of aiconfigurator-core's prefill table: half the scores over the dense peak."""
    flops = 4 * 4 * 32 * tokens * tokens * 128 / 2
    measured_s = flops / share / peak_flops_per_s(device(name), "bf16")
    assert seconds(name, tokens) == pytest.approx(measured_s, rel=0.15)


def test_every_measured_family_is_in_the_catalogue() -> None:
    assert set(CAUSAL) <= {found.family for found in devices().values()}


@pytest.mark.parametrize("name", ["A100", "H100", "T4"])
@pytest.mark.parametrize("op", [FLASH, f"{FLASH}_backward"])
def test_longer_takes_longer_and_less_than_in_proportion_to_its_scores(name: str, op: str) -> None:
    lengths = [128 * 2**n for n in range(8)]
    times = [seconds(name, n, op=op) for n in lengths]
    assert times == sorted(times)
    assert all(after < 4.01 * before for before, after in pairwise(times))


def test_what_masks_nothing_or_has_no_tiles_has_one_rate() -> None:
    shape = (4, 32, 32, 4096, 4096, 128, 128, 4096)
    assert flash_share(FLASH_FULL, shape, device("A100")) == UNMEASURED
    assert flash_share(FLASH, shape[:5], device("cpu")) == UNMEASURED
    backward = flash_share(f"{FLASH_FULL}_backward", shape, device("A100"))
    assert backward == pytest.approx(UNMEASURED * BACKWARD)


def test_a_short_window_is_as_inefficient_as_a_short_sequence() -> None:
    def band(window: int) -> float:
        return flash_share(FLASH_BAND, (4, 32, 8, 8192, 8192, 128, 128, window), device("H100"))

    assert band(512) == flash_share(FLASH, (4, 32, 8, 512, 128), device("H100"))
    assert band(512) < band(4096) < band(8192)


@pytest.mark.parametrize(("name", "ratio"), [("H100", 1.75), ("A100", 1), ("B200", 1)])
def test_kernels_written_for_ampere_are_slower_on_hopper(name: str, ratio: float) -> None:
    shape = (4, 32, 8, 8192, 128)
    own, second = (flash_share(FLASH, shape, device(name), generation) for generation in (3, 2))
    assert own / second == pytest.approx(ratio)


def test_a_stack_pays_for_the_kernels_that_it_calls() -> None:
    cluster = parse_cluster("8xH100-80GB").cluster
    kernel = Kernel(FLASH, (4, 32, 8, 8192, 128), "bf16", 4 * 4 * 32 * 8192**2 * 128, 2**28)
    seconds = {
        name: Pricer(Machine(cluster), stack(name)).kernel(kernel).time_s
        for name in ("megatron", "torchtitan")
    }
    assert 1.5 < seconds["torchtitan"] / seconds["megatron"] < 2
