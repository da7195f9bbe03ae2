"""Figures against an independent list, how each is known, and where sources disagree."""

from __future__ import annotations

import pytest

from shardwright.datasets.catalogue.device import CPU, device, devices
from shardwright.datasets.catalogue.disagreements import Disagreement, disagreements
from shardwright.datasets.catalogue.fabric import fabric, fabrics
from shardwright.datasets.catalogue.links import link_rates
from shardwright.datasets.catalogue.node import nodes
from shardwright.datasets.catalogue.source_kind import KINDS, source_kind, source_kinds
from shardwright.datasets.clusters.parse import parse_cluster

# Dense TFLOP/s in 16 bits with fp32 sums, GB of memory, GB/s: typed from buyers' guides, rounded.
KNOWN = {
    "V100-SXM-32GB": (125, 32, 900), "T4-16GB": (65, 16, 320), "A100-SXM-80GB": (312, 80, 2039),
    "A100-SXM-40GB": (312, 40, 1555), "A10-24GB": (125, 24, 600), "A10G-24GB": (70, 24, 600),
    "RTX-3090-24GB": (71, 24, 936), "RTX-A6000-48GB": (155, 48, 768), "L4-24GB": (121, 24, 300),
    "RTX-4090-24GB": (165, 24, 1008), "RTX-6000-Ada-48GB": (364, 48, 960),
    "L40S-48GB": (362, 48, 864), "RTX-PRO-6000-96GB": (480, 96, 1597),
    "H100-SXM-80GB": (989, 80, 3350), "H100-PCIE-80GB": (756, 80, 2000),
    "H200-SXM-141GB": (989, 141, 4800), "B200-SXM-180GB": (2250, 180, 8000),
    "B300-SXM-270GB": (2250, 270, 8000), "GB200-186GB": (2500, 186, 8000),
    "GB300-279GB": (2500, 279, 8000), "MI250X-64GB": (191.5, 64, 1638),
    "MI300X-192GB": (1307, 192, 5300), "A40-48GB": (150, 48, 696), "A30-24GB": (165, 24, 933),
    "H20-SXM-96GB": (148, 96, 4000), "L20-48GB": (119.5, 48, 864), "MI250-64GB": (181, 64, 1638),
    "RTX-3080-10GB": (59.5, 10, 760), "RTX-3080-12GB": (61.3, 12, 912),
    "RTX-A5000-24GB": (111, 24, 768), "RTX-5090-32GB": (209.5, 32, 1792),
    "RTX-2080-Ti-11GB": (53.8, 11, 616), "GB10-128GB": (125, 128, 273),
    "MI355X-288GB": (2500, 288, 8000),
}  # fmt: skip
EIGHT_BITS = {"L4", "RTX-4090", "RTX-6000-Ada", "L40S", "RTX-PRO-6000", "H100", "H800", "H200",
              "B200", "B300", "GB200", "GB300", "MI300X", "H20", "L20", "RTX-5090", "GB10",
              "MI355X"}  # fmt: skip
FOUR_BITS = {"RTX-PRO-6000", "B200", "B300", "GB200", "GB300", "RTX-5090", "GB10"}
HALVED_BY_SUMS = {"RTX-5090"}
"""Cards whose 8- and 16-bit rates are halved by sums in fp32, and whose 4-bit rate is not."""


@pytest.mark.parametrize("name", KNOWN)
def test_peaks_and_memory_agree_with_an_independent_list(name: str) -> None:
    tflops, memory_gb, bandwidth_gb_per_s = KNOWN[name]
    item = device(name)
    assert item.peak_flops_per_s["fp16"] == pytest.approx(tflops * 1e12, rel=0.01)
    assert item.memory_label == f"{memory_gb}GB"
    assert item.memory_bandwidth_bytes_per_s == pytest.approx(bandwidth_gb_per_s * 1e9, rel=0.01)


def test_narrow_formats_are_where_the_hardware_has_them_at_twice_the_rate() -> None:
    for item in devices().values():
        peaks = item.peak_flops_per_s
        assert ("fp8" in peaks) == (item.family in EIGHT_BITS), item.name
        assert ("nvfp4" in peaks) == (item.family in FOUR_BITS), item.name
        if "fp8" in peaks:
            assert peaks["fp8"] == pytest.approx(2 * peaks["fp16"], rel=0.015)
        if "nvfp4" in peaks:
            times = 2 if item.family in HALVED_BY_SUMS else 1
            assert 1.9 * times < peaks["nvfp4"] / peaks["fp8"] < 3.1 * times
        if "tf32" in peaks:
            assert 0.99 * peaks["fp32"] <= peaks["tf32"] <= 0.51 * peaks["fp16"]


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("NVIDIA H100 datasheet, 2023", "data sheet"),
        ("PCI Express 4.0 x16, 128b/130b", "data sheet"),
        ("as A100-SXM-80GB, dense", "data sheet"),
        ("NCCL source, src/graph/tuning.cc, 2026: base latency of a ring, LL", "data sheet"),
        ("measured: 271.2 TFLOP/s bf16, Bekman, ML Engineering, 2026", "measured"),
        ("NVIDIA GTC 2024 session S62129: NCCL all-reduce 24 GB/s", "measured"),
        ("PyTorch device properties, H200 (public log)", "measured"),
        ("derived: 79.15 GiB, the lowest", "derived"),
        ("by its name", "derived"),
        ("assumed: NVLink3, measured", "assumed"),
    ],
)
def test_a_source_tells_how_a_figure_is_known(source: str, kind: str) -> None:
    assert source_kind(source) == kind


def test_every_figure_is_of_one_kind_and_ceilings_are_never_off_a_data_sheet() -> None:
    entries = [*devices().values(), *nodes().values(), *fabrics().values()]
    for item in entries:
        assert set(source_kinds(item.sources).values()) <= set(KINDS)
    for gpu in (item for item in devices().values() if item.name != CPU):
        for figure in ("matmul_ceiling", "memory_ceiling", "kernel_launch_s"):
            assert source_kind(gpu.sources[figure]) in ("measured", "assumed"), gpu.name


def _taken(item: Disagreement) -> float:
    entry = device(item.subject) if item.subject in devices() else fabric(item.subject)
    name, _, part = item.figure.partition(".")
    value = getattr(entry, name)
    return float(value[part] if part else value)


@pytest.mark.parametrize("item", disagreements(), ids=lambda item: f"{item.subject} {item.figure}")
def test_a_disagreement_is_settled_as_the_catalogue_has_it(item: Disagreement) -> None:
    assert _taken(item) == pytest.approx(item.taken, rel=1e-3)
    said = [value for _, value in item.values]
    assert min(abs(value / item.taken - 1) for value in said) < 1e-3
    assert max(said) > min(said)
    assert item.why
    assert all(source for source, _ in item.values)


def test_what_is_printed_with_sparsity_or_both_ways_is_settled() -> None:
    settled = {(item.subject, item.figure) for item in disagreements()}
    for name in ("A100-SXM-80GB", "H100-SXM-80GB", "B200-SXM-180GB", "GB200-186GB", "MI250X-64GB"):
        assert (name, "peak_flops_per_s.bf16") in settled
    for name in ("NVLink3", "NVLink4", "NVLink5", "PCIe4"):
        assert (name, "bandwidth_bytes_per_s") in settled


@pytest.mark.parametrize("name", [item.name for item in fabrics().values() if item.adapters])
def test_oversubscription_divides_every_network(name: str) -> None:
    cluster = parse_cluster(f"16xH100@{name}:oversub=2").cluster
    assert link_rates(cluster, cluster.levels[-1]).oversubscription == 2
