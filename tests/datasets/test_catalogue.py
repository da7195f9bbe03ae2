"""Devices, nodes and fabrics: every figure has a source, and the figures agree with each other."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.datasets.catalogue.device import CPU, Device, device, devices
from shardwright.datasets.catalogue.device_formats import require_dtype
from shardwright.datasets.catalogue.fabric import (
    COLLECTIVES,
    Fabric,
    fabric,
    fabrics,
    ring_steps,
    wire_fraction,
)
from shardwright.datasets.catalogue.node import Node, node_holding, nodes, usual_node
from shardwright.spec.errors import InputError
from shardwright.spec.units import GIB

DEVICES = list(devices().values())
GPUS = [item for item in DEVICES if item.name != CPU]
ASKED_FOR = {
    "V100-SXM-16GB", "V100-SXM-32GB", "A100-SXM-40GB", "A100-SXM-80GB", "A800-SXM-80GB",
    "H100-SXM-80GB", "H100-PCIE-80GB", "H800-SXM-80GB", "H200-SXM-141GB", "B200-SXM-180GB", "cpu",
    "T4-16GB", "L4-24GB", "A10-24GB", "A10G-24GB", "RTX-3090-24GB", "RTX-4090-24GB",
    "RTX-A6000-48GB", "RTX-6000-Ada-48GB", "L40S-48GB", "RTX-PRO-6000-96GB", "B300-SXM-270GB",
    "GB200-186GB", "GB300-279GB", "MI250X-64GB", "MI300X-192GB", "A40-48GB", "A30-24GB",
    "H20-SXM-96GB", "L20-48GB", "MI250-64GB", "RTX-3080-10GB", "RTX-3080-12GB", "RTX-A5000-24GB",
    "RTX-5090-32GB", "GB10-128GB", "MI355X-288GB", "RTX-2080-Ti-11GB",
}  # fmt: skip
NOT_FIGURES = {
    "name", "family", "form", "usual", "dtypes", "sources", "scope", "technology", "curves",
    "devices", "usual_for", "also_called", "note",
}  # fmt: skip
PAIRS_AND_RACKS = {"devices_per_pair", "pair_link", "devices_per_rack", "rack_link"}
NO_BF16 = {"V100", "T4", "RTX-2080-Ti"}
WAYS_TO_KNOW = ("measured", "assumed", "derived", "as ", "by its name", "by definition", "/proc/")


def _figures(item: Device | Node | Fabric) -> set[str]:
    names = {field.name for field in dataclasses.fields(item)} - NOT_FIGURES
    if isinstance(item, Device):
        names = (names - {"peak_flops_per_s"}) | {
            f"peak_flops_per_s.{dtype}" for dtype in item.peak_flops_per_s
        }
    if isinstance(item, Node):
        names -= {key for key in PAIRS_AND_RACKS if getattr(item, key) is None}
    if isinstance(item, Fabric):
        names -= {"adapters"} if item.scope == "node" else set()
        names |= {"curves"} if item.curves else set()
    return names


@pytest.mark.parametrize(
    "item", [*DEVICES, *nodes().values(), *fabrics().values()], ids=lambda item: item.name
)
def test_every_figure_has_a_source(item: Device | Node | Fabric) -> None:
    assert _figures(item) <= set(item.sources)
    for source in item.sources.values():
        # A paper, data sheet or standard has a number; everything else says how we know.
        assert source.startswith(WAYS_TO_KNOW) or any(c.isdigit() for c in source), source


def test_the_catalogue_has_what_was_asked_for() -> None:
    assert set(devices()) >= ASKED_FOR
    assert {"DGX-1", "HGX-A100", "HGX-A800", "HGX-H100", "HGX-H800", "HGX-H200", "HGX-B200"} <= set(
        nodes()
    )
    assert {"8x400G-IB", "8x200G-IB", "1x100G-ETH", "loopback"} <= set(fabrics())


@pytest.mark.parametrize("item", GPUS, ids=lambda item: item.name)
def test_device_figures_are_possible(item: Device) -> None:
    # Error correction in line takes a sixteenth of the memory of cards that have it.
    assert 0.9 * item.nominal_memory_bytes < item.capacity_bytes < item.nominal_memory_bytes
    assert item.nominal_memory_bytes == int(item.memory_label.removesuffix("GB")) * GIB
    assert 0.5 < item.matmul_ceiling < 1
    assert 0.5 < item.memory_ceiling < 1
    assert set(item.dtypes) <= set(item.peak_flops_per_s)
    assert item.peak_flops_per_s["fp16"] > item.peak_flops_per_s["fp32"]
    assert item.host_link_bytes_per_s < item.memory_bandwidth_bytes_per_s
    assert ("bf16" in item.dtypes) == item.flash_attention == (item.family not in NO_BF16)


@pytest.mark.parametrize(
    ("name", "flop_per_clock_of_an_sm"),
    [
        ("V100-SXM-32GB", 1024),
        ("A100-SXM-80GB", 2048),
        ("H100-SXM-80GB", 4096),
        ("T4-16GB", 1024),
        ("L4-24GB", 1024),
        ("A10-24GB", 1024),
        ("A10G-24GB", 512),
        ("RTX-3090-24GB", 512),
        ("RTX-4090-24GB", 512),
        ("RTX-A6000-48GB", 1024),
        ("RTX-6000-Ada-48GB", 1024),
        ("L40S-48GB", 1024),
        ("MI250X-64GB", 1024),
        ("MI250-64GB", 1024),
        ("A30-24GB", 2048),
        ("A40-48GB", 1024),
        ("L20-48GB", 512),
        ("RTX-3080-10GB", 512),
        ("RTX-3080-12GB", 512),
        ("RTX-A5000-24GB", 1024),
        ("MI300X-192GB", 2048),
        ("RTX-5090-32GB", 512),
        ("GB10-128GB", 1024),
        ("MI355X-288GB", 4096),
    ],
)
def test_dense_peak_is_what_the_tensor_cores_add_up_to(
    name: str, flop_per_clock_of_an_sm: int
) -> None:
    # Multiply-adds a clock from the architecture whitepapers; a sparse peak would be twice off.
    item = device(name)
    expected = item.sm_count * item.boost_clock_hz * flop_per_clock_of_an_sm
    assert item.peak_flops_per_s["fp16"] == pytest.approx(expected, rel=0.015)


@pytest.mark.parametrize("family", ["V100", "A100", "H100"])
def test_a_larger_memory_of_a_family_is_larger(family: str) -> None:
    sizes = sorted(
        (int(item.memory_label.removesuffix("GB")), item.capacity_bytes)
        for item in GPUS
        if item.family == family and item.form == "SXM"
    )
    assert [capacity for _, capacity in sizes] == sorted(capacity for _, capacity in sizes)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("H100", "H100-SXM-80GB"),
        ("h100-80gb", "H100-SXM-80GB"),
        ("H100-PCIe", "H100-PCIE-80GB"),
        ("A100-80GB", "A100-SXM-80GB"),
        ("A100", "A100-SXM-80GB"),
        ("a100-sxm4-40gb", "A100-SXM-40GB"),
        ("A100-40GB", "A100-SXM-40GB"),
        ("A100-PCIE", "A100-PCIE-80GB"),
        ("V100", "V100-SXM-32GB"),
        ("B200", "B200-SXM-180GB"),
        ("cpu", "cpu"),
        ("T4", "T4-16GB"),
        ("RTX4090", "RTX-4090-24GB"),
        ("rtx-4090", "RTX-4090-24GB"),
        ("A6000", "RTX-A6000-48GB"),
        ("RTX-6000-Ada", "RTX-6000-Ada-48GB"),
        ("RTX-6000-ada-48gb", "RTX-6000-Ada-48GB"),
        ("RTX-PRO-6000", "RTX-PRO-6000-96GB"),
        ("B300", "B300-SXM-270GB"),
        ("B300-288GB", "B300-SXM-270GB"),
        ("GB200", "GB200-186GB"),
        ("GB300-NVL72", "GB300-279GB"),
        ("MI250X", "MI250X-64GB"),
        ("MI250X-GCD-64GB", "MI250X-64GB"),
        ("MI300X", "MI300X-192GB"),
        ("MI250", "MI250-64GB"),
        ("RTX3080", "RTX-3080-10GB"),
        ("RTX-3080-12GB", "RTX-3080-12GB"),
        ("A5000", "RTX-A5000-24GB"),
        ("A40", "A40-48GB"),
        ("A30", "A30-24GB"),
        ("H20", "H20-SXM-96GB"),
        ("L20", "L20-48GB"),
        ("A100-80G", "A100-SXM-80GB"),
        ("a100_80gb", "A100-SXM-80GB"),
        ("A100-80", "A100-SXM-80GB"),
        ("A100-40G", "A100-SXM-40GB"),
        ("H100 80GiB", "H100-SXM-80GB"),
        ("NVIDIA-H100-80GB-HBM3", "H100-SXM-80GB"),
        ("NVIDIA-A100-SXM4-80GB", "A100-SXM-80GB"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090-24GB"),
        ("Tesla-V100-SXM2-32GB", "V100-SXM-32GB"),
        ("NVIDIA-RTX-6000-Ada-Generation", "RTX-6000-Ada-48GB"),
        ("RTX-PRO-6000-Blackwell-Server-Edition", "RTX-PRO-6000-96GB"),
        ("AMD-Instinct-MI355X-OAM", "MI355X-288GB"),
        ("MI355X", "MI355X-288GB"),
        ("3080-12G", "RTX-3080-12GB"),
        ("3090", "RTX-3090-24GB"),
        ("4090", "RTX-4090-24GB"),
        ("4090-24GB", "RTX-4090-24GB"),
        ("5090", "RTX-5090-32GB"),
        ("GeForce-RTX-5090", "RTX-5090-32GB"),
        ("GB10", "GB10-128GB"),
        ("DGX-Spark", "GB10-128GB"),
        ("B200-192G", "B200-SXM-180GB"),
        ("B300-SXM6-AC", "B300-SXM-270GB"),
        ("B300-268GB", "B300-SXM-270GB"),
    ],
)
def test_short_names_mean_the_usual_size_and_form(typed: str, meant: str) -> None:
    assert device(typed).name == meant


@given(st.sampled_from(DEVICES), st.booleans())
def test_full_names_resolve_to_themselves_in_any_case(item: Device, upper: bool) -> None:
    assert device(item.name.upper() if upper else item.name.lower()) == item


@pytest.mark.parametrize("family", sorted({item.family for item in DEVICES}))
def test_each_family_and_form_has_one_usual_size(family: str) -> None:
    marked = [item for item in DEVICES if item.family == family and item.usual]
    assert len(marked) == 1


@pytest.mark.parametrize(
    ("typed", "near"),
    [
        ("H10", "H100"),
        ("A100-90GB", "A100-80GB"),
        ("A100-PCIE-40GB", "A100-PCIE-80GB"),
        ("B20", "B200"),
        ("6000", "A6000"),
        ("", None),
    ],
)
def test_unknown_device_is_one_line_with_the_nearest(typed: str, near: str | None) -> None:
    with pytest.raises(InputError) as caught:
        device(typed)
    assert "\n" not in str(caught.value)
    assert near is None or near in str(caught.value.nearest).split(", ")


@pytest.mark.parametrize("item", list(nodes().values()), ids=lambda item: item.name)
def test_nodes_join_known_things(item: Node) -> None:
    assert item.link_fabric.scope == "node"
    assert item.network_fabric.scope == "network"
    assert set(item.usual_for) <= set(item.devices) <= set(devices())
    # Inside a node is faster than out of it, or nobody would build one.
    if item.name != "local":
        network = item.network_fabric.device_bandwidth_bytes_per_s(item.devices_per_node)
        assert item.link_fabric.bandwidth_bytes_per_s > network


def test_every_device_but_two_has_exactly_one_usual_node() -> None:
    for item in GPUS:
        usual = [n.name for n in nodes().values() if item.name in n.usual_for]
        expected = 0 if item.name in ("A100-PCIE-80GB", "H100-PCIE-80GB") else 1
        assert len(usual) == expected, item.name
        assert (usual_node(item.name) is None) == (expected == 0)


def test_a_node_that_holds_more_is_found() -> None:
    found = node_holding("V100-SXM-32GB", 16)
    assert found is not None
    assert found.name == "DGX-2"
    assert node_holding("H100-SXM-80GB", 9) is None


@given(
    st.sampled_from(list(fabrics().values())),
    st.sampled_from(COLLECTIVES),
    st.integers(2, 4096),
    st.integers(1, 2**34),
)
def test_collectives_never_get_cheaper_with_bytes(
    item: Fabric, kind: str, ranks: int, payload_bytes: int
) -> None:
    def seconds(payload: int) -> float:
        wire = wire_fraction(kind, ranks) * payload
        rate = item.bandwidth_bytes_per_s
        return min(r.setup_s + wire / (rate * r.efficiency) for r in item.regimes(kind, ranks))

    assert 0 < seconds(payload_bytes) <= seconds(2 * payload_bytes) <= 2 * seconds(payload_bytes)
    for regime in item.regimes(kind, ranks):
        assert 0 < regime.efficiency < 1.05  # the switch may reduce: a little over the wire rate


@given(st.sampled_from(list(fabrics().values())), st.sampled_from(COLLECTIVES))
def test_set_up_grows_with_the_ring(item: Fabric, kind: str) -> None:
    large = [item.regimes(kind, ranks)[0].setup_s for ranks in (16, 32, 64, 1024)]
    assert large == sorted(large)


# Microseconds of aiconfigurator-core 0.12.0's nccl table: payload bytes, ranks, measured.
MEASURED = [
    ("NVLink4", "all_reduce", 8, 512, 15.98),
    ("NVLink4", "all_reduce", 8, 536870912, 2040.3),
    ("NVLink4", "all_gather", 8, 536870912, 1393.6),
    ("NVLink4", "reduce_scatter", 4, 536870912, 1295.5),
    ("NVLink3", "all_reduce", 8, 536870912, 4226.0),
    ("NVLink3", "all_gather", 4, 512, 10.76),
    ("NVLink5", "all_reduce", 4, 536870912, 1273.6),
    ("NVLink5", "reduce_scatter", 8, 512, 15.98),
]


@pytest.mark.parametrize(("name", "kind", "ranks", "payload_bytes", "measured_us"), MEASURED)
def test_fitted_curves_meet_the_table_they_were_fitted_to(
    name: str, kind: str, ranks: int, payload_bytes: int, measured_us: float
) -> None:
    item = fabric(name)
    wire = wire_fraction(kind, ranks) * payload_bytes
    rate = item.bandwidth_bytes_per_s
    predicted_s = min(r.setup_s + wire / (rate * r.efficiency) for r in item.regimes(kind, ranks))
    assert predicted_s * 1e6 == pytest.approx(measured_us, rel=0.2)


def test_a_fabric_like_another_assumes_what_it_does_not_say() -> None:
    efa, first, roce = (fabric(name) for name in ("16x200G-EFA", "4x100G-EFA", "8x400G-ROCE"))
    assert (efa.scope, efa.technology, efa.adapters) == ("network", "efa", 16)
    assert efa.node_bandwidth_bytes_per_s == 400e9
    assert efa.efficiency == first.efficiency
    assert efa.sources["efficiency"] == "assumed: 4x100G-EFA"
    assert (first.bulk_launch_s, first.sources["bulk_launch_s"]) == (
        roce.bulk_launch_s,
        "assumed: 8x400G-ROCE",
    )
    assert fabric("XGMI-MI355X").regimes("all_gather", 8)[1].efficiency == pytest.approx(0.68)


def test_ring_formulas() -> None:
    assert ring_steps("all_reduce", 8) == 14
    assert wire_fraction("all_reduce", 8) == pytest.approx(1.75)
    assert wire_fraction("all_gather", 4) == pytest.approx(0.75)
    assert wire_fraction("send", 2) == 1


def test_unmeasured_rank_counts_lie_between_their_neighbours() -> None:
    item = fabric("NVLink4")
    four, six, eight = (item.regimes("all_gather", ranks)[1] for ranks in (4, 6, 8))
    assert four.efficiency <= six.efficiency <= eight.efficiency
    assert six.setup_s == pytest.approx((four.setup_s + eight.setup_s) / 2)


def test_devices_share_a_network_and_their_own_bus() -> None:
    network = fabric("8x400g-ib")
    assert network.node_bandwidth_bytes_per_s == 400e9
    assert network.device_bandwidth_bytes_per_s(8) == 50e9
    assert network.device_bandwidth_bytes_per_s(1, host_link_bytes_per_s=63e9) == 63e9
    assert fabric("NVLink4").device_bandwidth_bytes_per_s(2) == 450e9


def test_a_link_inside_the_node_is_no_network() -> None:
    with pytest.raises(InputError, match="8x400G-IB"):
        fabric("NVLink4", scope="network")


def test_names_are_resolved_without_heavy_libraries() -> None:
    code = (
        "import sys\n"
        "from shardwright.datasets.clusters.parse import parse_cluster\n"
        "from shardwright.datasets.models.load import load_model\n"
        "parse_cluster('64xH100'); parse_cluster('local'); load_model('llama-3-70b')\n"
        "print(sorted({'torch', 'yaml', 'numpy', 'pandas', 'xgboost'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_format_that_a_device_lacks_is_refused_by_name() -> None:
    for item in DEVICES:
        for dtype in ("fp32", "bf16", "fp16"):
            if dtype in item.dtypes:
                require_dtype(item, dtype, "workloads.main.dtype.param")
                continue
            with pytest.raises(InputError, match=f"dtype.param: got {dtype}.*{item.name}"):
                require_dtype(item, dtype, "workloads.main.dtype.param")
    with pytest.raises(InputError, match="fp32, fp16"):
        require_dtype(device("V100-SXM-16GB"), "bf16", "--dtype")
