"""Programs as sequences: leaves, reuse, positions, packing, tiles, the transformer."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shardwright.costmodel.programs.device_vector import device_vector
from shardwright.costmodel.programs.kernels import program_of
from shardwright.costmodel.programs.leaf_features import footprint, traffic
from shardwright.costmodel.programs.nest import Access, Loop, Program
from shardwright.costmodel.programs.packed import packed, unpacked
from shardwright.costmodel.programs.positions import encoded
from shardwright.costmodel.programs.sequence import leaves_of, pooled
from shardwright.costmodel.programs.tile_work import (
    DeviceRates,
    TileConstants,
    TileWork,
    rates,
    tile_work,
    tiled_seconds,
)
from shardwright.costmodel.programs.transformer import HEADS, INNER, LAYERS, WIDTH, Transformer
from shardwright.datasets.catalogue.device import device
from shardwright.spec.report.work_items import Kernel, streamed

KERNELS = (
    Kernel("matmul", (512, 256, 1024), "bf16", 2 * 512 * 256 * 1024, 1),
    Kernel("batched_matmul", (8, 64, 32, 64), "bf16", 1, 1),
    Kernel("grouped_matmul", (4, 512, 64, 128), "bf16", 1, 1),
    Kernel("flash_attention", (1, 32, 8, 2048, 128), "bf16", 1, 1),
    Kernel("flash_attention_full_backward", (1, 8, 8, 256, 512, 64, 64), "bf16", 1, 1),
    Kernel("state_space_scan", (1, 16, 8, 512, 64, 128, 128), "bf16", 1, 1),
    Kernel("fused_experts", (512, 256, 512, 2, 8, 1, 2), "bf16", 1, 1),
    streamed("rms_norm", 2**20, 2**22, "bf16"),
    streamed("softmax", 2**20, 2**23, "fp32"),
    streamed("fused_adamw", 2**20, 2**24, "fp32"),
    streamed("copy", 2**20, 2**22, "bf16"),
)


def test_every_kind_of_kernel_has_leaves_in_preorder() -> None:
    for kernel in KERNELS:
        positions = [leaf.position for leaf in program_of(kernel).leaves]
        assert positions == sorted(set(positions)), kernel.op
    products = program_of(KERNELS[0]).leaves[0]
    assert 2 * products.points == KERNELS[0].flops
    assert len(program_of(KERNELS[8]).leaves) == 3  # maximum, sum, quotient


def test_a_buffer_that_fits_is_read_once_and_else_again_and_again() -> None:
    loops = (Loop(64), Loop(1024))
    vector = Access(4.0, (0, 1))
    assert footprint(vector, loops) == 4096
    assert traffic([vector], loops, 8192) == 4096
    assert traffic([vector], loops, 1024) == 64 * 4096
    assert footprint(Access(4.0, (1024, 0)), loops) == 64 * 64  # a line for each value


def test_positions_are_sines_and_cosines() -> None:
    values = encoded(np.array([0.0, 3.0], np.float32), 8)
    assert values[0].tolist() == [0, 1] * 4
    assert values[1, 2] == pytest.approx(math.sin(3 / 10000 ** (2 / 8)))


def test_packed_programs_come_back_and_damaged_ones_do_not() -> None:
    programs = [program_of(kernel) for kernel in KERNELS]
    arrays = packed(programs)
    assert unpacked(arrays) == programs
    with pytest.raises(ValueError, match="strides"):
        unpacked({**arrays, "strides": np.append(arrays["strides"], 1)})


def test_padding_changes_no_pooled_row_and_features_are_finite() -> None:
    programs = [program_of(kernel) for kernel in KERNELS]
    together = leaves_of(programs)
    for row, program in enumerate(programs):
        alone = pooled(leaves_of([program]))[0]
        assert np.array_equal(alone, pooled(together)[row])
    assert np.isfinite(together.features).all()


def test_tiles_take_longer_with_more_work_and_less_on_a_faster_device() -> None:
    small, large = (
        Kernel("flash_attention", (4, 32, 8, seq, 128), "bf16", 1, 1) for seq in (512, 4096)
    )
    work = tile_work([program_of(small), program_of(large)])
    assert work.tiles.tolist() == [4 * 8 * 16, 4 * 8 * 128]
    slow, fast = (
        tiled_seconds(work, rates([device(name)] * 2, "bf16"), TileConstants())
        for name in ("A100", "H100")
    )
    assert slow[0] < slow[1]
    assert (fast < slow).all()


def test_a_waveless_program_pays_one_prologue() -> None:
    one = TileWork(*(np.array([value]) for value in (1.0, 1.0, 1.0, 1.0)))
    on = DeviceRates(*(np.array([value]) for value in (100.0, 1e9, 1e15, 1e12, 1e-6, 1e6)))
    seconds = tiled_seconds(one, on, TileConstants(prologue_cycles=1e4, step_cycles=1e3))
    assert seconds[0] == pytest.approx(1e-6 + 1.1e-5, rel=1e-3)


def _random_transformer(features: int, figures: int) -> Transformer:
    random = np.random.default_rng(0)
    sides = {
        "entry": (features, WIDTH),
        "pooling": (2 * WIDTH, WIDTH),
        "decoder.0": (WIDTH, WIDTH),
        "decoder.2": (WIDTH, 1),
        "device.0": (figures, WIDTH),
        "device.2": (WIDTH, WIDTH),
    }
    for layer in range(LAYERS):
        sides |= {
            f"layers.{layer}.qkv": (WIDTH, 3 * WIDTH),
            f"layers.{layer}.out": (WIDTH, WIDTH),
            f"layers.{layer}.up": (WIDTH, INNER),
            f"layers.{layer}.down": (INNER, WIDTH),
        }
    weights = {}
    for name, (before, after) in sides.items():
        weights[f"{name}.weight"] = random.normal(size=(after, before)).astype(np.float32) / 8
        weights[f"{name}.bias"] = random.normal(size=after).astype(np.float32) / 8
    norms = [f"layers.{layer}.{n}" for layer in range(LAYERS) for n in ("first", "second")]
    for name in (*norms, "last"):
        weights[f"{name}.weight"] = np.ones(WIDTH, np.float32)
        weights[f"{name}.bias"] = np.zeros(WIDTH, np.float32)
    for name, size in (("feature", features), ("device", figures)):
        weights[f"{name}_mean"] = np.zeros(size, np.float32)
        weights[f"{name}_scale"] = np.ones(size, np.float32)
    return Transformer({**weights, "label": np.array([0, 1], np.float32),
                        "uses_positions": np.ones(1, np.float32)})  # fmt: skip


def test_padding_changes_no_prediction_and_order_does() -> None:
    programs = [program_of(kernel) for kernel in KERNELS]
    vectors = np.array([device_vector(device("H100"), "bf16")] * len(programs), np.float32)
    together = leaves_of(programs)
    net = _random_transformer(together.features.shape[-1], vectors.shape[-1])
    predicted = net.at(together, vectors)
    for row, program in enumerate(programs):
        alone = net.at(leaves_of([program]), vectors[:1])[0]
        assert alone == pytest.approx(predicted[row], abs=1e-5)
    first = programs[3]
    moved = tuple(leaf._replace(position=40 - leaf.position) for leaf in first.leaves)
    assert abs(net.at(leaves_of([Program(moved)]), vectors[:1])[0] - predicted[3]) > 1e-3
    assert HEADS * (WIDTH // HEADS) == WIDTH
