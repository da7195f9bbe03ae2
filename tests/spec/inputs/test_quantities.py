"""Values of questions: amounts with units, factors, and what is refused with which fix."""

from __future__ import annotations

import math

import pytest

from shardwright.spec.errors import InputError
from shardwright.spec.inputs.quantities import QuantityKind, quantity
from shardwright.spec.inputs.what_if_keys import (
    WHAT_IF_KEYS,
    entry_of,
    keys_text,
    known_paths,
    what_if_key,
)

WAS: dict[QuantityKind, float] = {
    "bytes": 1e10, "bytes_per_s": 1e11, "flops_per_s": 1e15, "seconds": 1e-5, "count": 100.0,
    "number": 1.0,
}  # fmt: skip
LEVELS = ("intra_node", "inter_node", "intra_rack")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("bytes", "40GiB", 40 * 2**30), ("bytes", "80 gb", 80e9), ("bytes", "1TiB", 2**40),
        ("bytes", "512MB", 512e6), ("bytes", "2x", 2e10), ("bytes", "+10%", 1.1e10),
        ("bytes_per_s", "50GB/s", 5e10), ("bytes_per_s", "400Gbit/s", 5e10),
        ("bytes_per_s", "400 Gbps", 5e10), ("bytes_per_s", "1TiB/s", 2.0**40),
        ("flops_per_s", "989TFLOP/s", 989e12), ("flops_per_s", "1PFLOPS", 1e15),
        ("seconds", "5us", 5e-6), ("seconds", "5µs", 5e-6), ("seconds", "1.5ms", 1.5e-3),
        ("seconds", "0.5x", 5e-6), ("seconds", "-25%", 7.5e-6),
        ("count", "512", 512.0), ("count", "x3", 300.0), ("count", "2 ×", 200.0),
        ("number", "1.25", 1.25), ("bytes", "1e9B", 1e9),
    ],
)  # fmt: skip
def test_what_is_meant(kind: QuantityKind, text: str, value: float) -> None:
    assert math.isclose(quantity(kind, text, WAS[kind], "--set x"), value, rel_tol=1e-12)


def test_numbers_are_si() -> None:
    assert quantity("bytes_per_s", 5e10, 1e10, "set") == 5e10
    assert quantity("count", 7, 3.0, "set") == 7.0


@pytest.mark.parametrize(
    ("kind", "text", "nearest"),
    [
        ("bytes", "40", "40GiB"), ("bytes", "40 gigs", "40GiB"), ("bytes_per_s", "50", "50GB/s"),
        ("bytes_per_s", "400Gb/s", "400GB/s or 400Gbit/s"),
        ("bytes_per_s", "400gb/s", "400GB/s or 400Gbit/s"),
        ("bytes_per_s", "50GB", "50GB/s"), ("flops_per_s", "989", "989TFLOP/s"),
        ("seconds", "5", "5us"), ("seconds", "-5us", "5us"), ("count", "1e3", "1000"),
        ("count", "12.5", "12"), ("count", "-5", "5"), ("count", "1.333x", "133 or 134"),
        ("count", "0", "1"), ("bytes", "50%", "0.5x or +50%"), ("bytes", "twice", "2x"),
        ("bytes", "0x", "2x"), ("bytes", "-100%", "2x"), ("seconds", "1e9x", "2x"),
        ("number", "", "2x"), ("bytes", "nan", "2x"), ("bytes", "infx", "2x"),
    ],
)  # fmt: skip
def test_what_is_refused_and_the_nearest_fix(kind: QuantityKind, text: str, nearest: str) -> None:
    with pytest.raises(InputError) as refused:
        quantity(kind, text, WAS[kind], "--set x")
    assert refused.value.field == "--set x"
    assert str(refused.value.nearest) == nearest


@pytest.mark.parametrize("value", [True, None, [1], float("nan"), float("inf"), -1.0])
def test_odd_numbers_are_refused(value: object) -> None:
    with pytest.raises(InputError):
        quantity("bytes", value, 100.0, "set")  # type: ignore[arg-type]


def test_every_key_is_listed_once_with_an_example() -> None:
    paths = [key.path for key in WHAT_IF_KEYS]
    assert len(set(paths)) == len(paths) >= 18
    shown = [name for name, _ in keys_text()]
    assert all(f"{key.path}={key.example}" in shown for key in WHAT_IF_KEYS)
    for path in known_paths(LEVELS, ("main",)):
        assert entry_of(path).path in paths
        assert what_if_key(path.upper().replace("_", "-"), "--set", LEVELS, ("main",)) == path


def test_counts_of_several_groups_name_the_group() -> None:
    groups = ("h100", "a100-2")
    assert what_if_key("a100-2.nodes", "--set", LEVELS, groups) == "a100-2.nodes"
    assert entry_of("a100-2.nodes").path == "nodes"
    with pytest.raises(InputError, match=r"h100\.nodes"):
        what_if_key("nodes", "--set", LEVELS, groups)


@pytest.mark.parametrize(
    ("typed", "near"),
    [("inter_nod.bandwith", "inter_node.bandwidth"), ("memory", "device.hbm"),
     ("batch", "global_batch"), ("gpus", "devices"), ("nvlink", "intra_node.bandwidth"),
     ("tflops", "device.flops"), ("inter_rack.latency", "intra_rack.latency")],
)  # fmt: skip
def test_an_unknown_key_gets_the_nearest_one(typed: str, near: str) -> None:
    with pytest.raises(InputError) as refused:
        what_if_key(typed, "--set", LEVELS, ("main",))
    assert near in str(refused.value.nearest)
    assert refused.value.field == f"--set {typed}"
