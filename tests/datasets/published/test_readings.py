"""Names of published runs that no table lists, read by what stands in them."""

from __future__ import annotations

import pytest

from shardwright.datasets.catalogue.device import CPU, devices
from shardwright.datasets.published.names import names
from shardwright.datasets.published.readings import read_device, read_dtype, read_recompute


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100-SXM-80GB"),
        ("A100-SXM4-40GB", "A100-SXM-40GB"),
        ("A100 PCIe 80GB", "A100-PCIE-80GB"),
        ("8x H100 SXM5", "H100-SXM-80GB"),
        ("DGX H200 (141 GB)", "H200-SXM-141GB"),
        ("NVIDIA GB200", "GB200-186GB"),
        ("GB300 NVL72", "GB300-279GB"),
        ("Tesla V100 32G", "V100-SXM-32GB"),
        ("RTX PRO 6000 Server", "RTX-PRO-6000-96GB"),
        ("AMD MI300X", "MI300X-192GB"),
        ("TPU v5p", None),
        ("AMD Instinct MI325X", None),
        ("A100 and H100", None),
        ("", None),
    ],
)
def test_devices(text: str, name: str | None) -> None:
    assert read_device(text) == name


def test_every_name_of_the_catalogue_reads_as_itself() -> None:
    for name in devices():
        assert name == CPU or read_device(name) == name


def test_what_the_table_lists_reads_alike_where_it_can_be_read() -> None:
    for text, entry in names()["hardware"].items():
        found = read_device(text)
        assert found is None or found.startswith(entry["device"].split("-")[0]), text
    for text, dtype in names()["dtype"].items():
        assert "alt granularity" in text or read_dtype(text) == dtype, text
    for text, policy in names()["recompute"].items():
        assert read_recompute(text) in (policy, None), text


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("bfloat16", "bf16"),
        ("fp8:hybrid", "fp8"),
        ("float8 tensorwise", "fp8"),
        ("mxfp8_cublas", "mxfp8"),
        ("nvfp4 (bf16 tail)", "nvfp4"),
        ("FP8 blockwise", "fp8-block"),
        ("float32", "fp32"),
        ("int8", None),
    ],
)
def test_number_formats(text: str, dtype: str | None) -> None:
    assert read_dtype(text) == dtype


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("full:uniform", "full"),
        ("selective", "selective"),
        ("selective:[core_attn]", "selective"),
        ("selective(per-op)", "selective-ops"),
        ("selective op", "selective-ops"),
        ("selective:[moe_act]", None),
        ("minimal_flash", None),
    ],
)
def test_recomputation(text: str, policy: str | None) -> None:
    assert read_recompute(text) == policy


def test_counts_of_devices_are_no_sizes() -> None:
    assert read_device("8 GPUs V100 16GB") == "V100-SXM-16GB"
    assert read_device("V100 GPU") == read_device("V100")
    assert read_dtype("mxfp4") is None
    assert read_recompute("None") == "none"
