"""Kernels priced from measured and learned times: exact where measured, honestly named."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardwright as sw
from shardwright.costmodel.kernel_latency.attention_features import NAMES as ATTENTION_NAMES
from shardwright.costmodel.kernel_latency.attention_features import Flash, base_seconds
from shardwright.costmodel.kernel_latency.attention_grid import kv_axis_position
from shardwright.costmodel.kernel_latency.device_latency import SAME_CHIP, DeviceLatency
from shardwright.costmodel.kernel_latency.experts_features import NAMES as EXPERTS_NAMES
from shardwright.costmodel.kernel_latency.forest import Forest
from shardwright.costmodel.kernel_latency.gemm_features import NAMES as GEMM_NAMES
from shardwright.costmodel.kernel_latency.gemm_features import gemm
from shardwright.costmodel.kernel_latency.log_grid import LogGrid, filled
from shardwright.costmodel.kernel_latency.predict import predict
from shardwright.costmodel.kernel_latency.profile_table import Latency
from shardwright.costmodel.kernel_latency.roofline import kernel_seconds
from shardwright.costmodel.kernel_latency.shipped_forests import shipped_forest
from shardwright.datasets.catalogue.device import device, devices
from shardwright.datasets.measured.timed_grid import FOLDER, timed_grid
from shardwright.spec.errors import InputError
from shardwright.spec.report.work_items import Kernel

MEASURED = sorted({name for name, _ in timed_grid("gemm").tables})
LEARNED = ("A10-24GB", "V100-SXM-32GB", "A100-PCIE-80GB")


def price(name: str, kernel: Kernel, generation: int = 3) -> Latency:
    found = DeviceLatency(device(name), generation).price(kernel)
    assert found is not None
    return found


def flash(batch: int, heads: int, kv_heads: int, seq: int, width: int = 128) -> Kernel:
    shape = (batch, heads, kv_heads, seq, width)
    values = 2 * batch * seq * width * (2 * heads + 2 * kv_heads)
    return Kernel("flash_attention", shape, "bf16", 4 * batch * heads * seq**2 * width, values)


@pytest.mark.parametrize(("name", "dtype"), timed_grid("gemm").tables)
def test_a_long_product_never_takes_less_time_when_every_side_doubles(
    name: str, dtype: str
) -> None:
    """Of 50 us or more, at every size that was measured."""
    grid = timed_grid("gemm")
    times, axes = grid.table(name, dtype), [np.array(axis) for axis in grid.axes.values()]
    assert times is not None
    doubled = [np.searchsorted(axis, 2 * axis) for axis in axes]
    there = [np.flatnonzero(to < len(axis)) for to, axis in zip(doubled, axes, strict=True)]
    before = times[np.ix_(*there)]
    after = times[np.ix_(*[to[of] for to, of in zip(doubled, there, strict=True)])]
    assert not ((before >= 50e-6) & (after < before)).any()


@pytest.mark.parametrize("name", MEASURED)
def test_a_measured_size_takes_its_own_time(name: str) -> None:
    grid = timed_grid("gemm")
    times = grid.table(name, "bf16")
    assert times is not None
    m, n, k = grid.axes.values()
    for i, j, o in itertools.product(range(0, len(m), 3), range(0, len(n), 5), range(0, len(k), 4)):
        found = price(name, gemm(m[i], k[o], n[j], "bf16"))
        assert found.source == "measured"
        assert found.time_s == pytest.approx(float(times[i, j, o]), rel=1e-5)


@pytest.mark.parametrize("name", MEASURED)
def test_attention_that_was_measured_takes_its_own_time(name: str) -> None:
    grid = timed_grid("attention")
    times = grid.table(name, "bf16")
    assert times is not None
    _, _, heads, batches, lengths = grid.axes.values()
    kernels = 0
    for place, h, b, s in np.argwhere(np.isfinite(times[1]))[::97].tolist():
        kv_heads = (1, 2, 4, 8, 16, heads[h])[place]
        if lengths[s] < 64 or (kv_heads == heads[h] and place < 5):
            continue  # one key and value head a head is the last place of its axis
        found = price(name, flash(batches[b], heads[h], kv_heads, lengths[s]))
        assert found.time_s == pytest.approx(float(times[1, place, h, b, s]), rel=1e-3)
        kernels += 1
    assert kernels > 10


@given(
    st.sampled_from((*MEASURED, *LEARNED)),
    *[st.integers(64, 32_768)] * 3,
    st.floats(1, 9),
)
@settings(max_examples=200, deadline=None)
def test_beyond_the_grid_time_grows_as_work_does(
    name: str, m: int, k: int, n: int, factor: float
) -> None:
    dtype = "fp16" if name.startswith("V100") else "bf16"
    edge, beyond = gemm(32_768, k, n, dtype), gemm(math.ceil(32_768 * factor), k, n, dtype)
    times = [price(name, kernel).time_s for kernel in (edge, beyond)]
    assert times[1] / times[0] == pytest.approx(beyond.shape[0] / 32_768)
    assert price(name, gemm(m, k, n, dtype)).time_s > 0


def test_sources_are_named() -> None:
    kernel = gemm(4096, 4096, 4096, "bf16")
    assert price("H100-SXM-80GB", kernel).source == "measured"
    assert price("A10-24GB", kernel).source == price("B300-SXM-270GB", kernel).source == "learned"
    for name in ("cpu", "MI300X-192GB"):
        assert DeviceLatency(device(name), 3).price(kernel) is None
    assert DeviceLatency(device("A100-SXM-80GB"), 3).price(gemm(64, 64, 64, "fp8")) is None
    copy = Kernel("copy", (64,), "bf16", 0, 256)
    assert DeviceLatency(device("H100-SXM-80GB"), 3).price(copy) is None


@pytest.mark.parametrize("name", sorted(SAME_CHIP))
def test_the_same_chip_keeps_the_ratio_of_the_rooflines(name: str) -> None:
    for kernel in (gemm(4096, 8192, 1024, "bf16"), flash(4, 16, 2, 4096)):
        own, twin = (kernel_seconds(kernel, device(x)) for x in (name, SAME_CHIP[name]))
        ratio = price(name, kernel).time_s / price(SAME_CHIP[name], kernel).time_s
        assert ratio == pytest.approx(own / twin)


def test_products_with_more_traffic_keep_the_ratio_of_the_rooflines() -> None:
    on = device("H100-SXM-80GB")
    plain = gemm(512, 512, 32768, "bf16")
    wide = plain._replace(traffic_bytes=2 * plain.traffic_bytes)
    ratio = price(on.name, wide).time_s / price(on.name, plain).time_s
    assert ratio == pytest.approx(kernel_seconds(wide, on) / kernel_seconds(plain, on))
    assert ratio > 1.5


def test_few_heads_are_more_sequences() -> None:
    for name in MEASURED:
        few, many = price(name, flash(8, 2, 2, 2048)), price(name, flash(2, 8, 8, 2048))
        assert few.time_s == pytest.approx(many.time_s, rel=1e-3)
        few, many = price(name, flash(8, 2, 1, 2048)), price(name, flash(2, 8, 4, 2048))
        assert few.time_s == pytest.approx(many.time_s, rel=1e-3)


@pytest.mark.parametrize("name", [*MEASURED, *LEARNED])
@pytest.mark.parametrize("seq", [1, 128, 2048, 16_384])
def test_fewer_heads_than_were_measured_take_less_but_not_in_proportion(
    name: str, seq: int
) -> None:
    """One head's longest row of tiles, and its launch, last as long as those of eight."""
    times = [price(name, flash(1, heads, heads, seq)).time_s for heads in (1, 2, 4, 8)]
    assert times == sorted(times)
    assert times[0] > times[3] / 8
    if seq <= 128:
        assert times[0] > 0.5 * times[3]


@pytest.mark.parametrize("name", MEASURED)
def test_half_the_rows_are_priced_better_than_in_proportion(name: str) -> None:
    """Eight heads from the measured time of 16, as fewer than the least are from the least."""
    grid, on = timed_grid("attention"), device(name)
    times = grid.table(name, "bf16")
    assert times is not None
    own, scaled, halved = [], [], []
    for number, seq in enumerate(grid.axes["seq"]):
        eight, sixteen = times[1, 5, :2, 0, number]
        if math.isnan(eight + sixteen):
            continue
        few, many = (base_seconds(Flash(1, n, n, seq, 128, "bf16"), on) for n in (8, 16))
        own.append(float(eight))
        scaled.append(float(sixteen) * few / many)
        halved.append(float(sixteen) / 2)
    assert len(own) > 10
    wrong, naive = (
        np.abs(np.array(found) / np.array(own) - 1).mean() for found in (scaled, halved)
    )
    assert wrong < min(0.15, naive / 2)


def test_a_device_without_bf16_is_not_priced_at_its_fp32_rate() -> None:
    kernel = flash(4, 32, 32, 4096)._replace(dtype="fp16")
    v100 = device("V100-SXM-32GB")
    assert price(v100.name, kernel).time_s < 2 * kernel_seconds(kernel, v100)


def test_the_way_back_and_an_older_generation_keep_their_ratios() -> None:
    forward = flash(4, 32, 8, 4096)
    back = forward._replace(op="flash_attention_backward", flops=forward.flops * 5 // 2)
    on = device("H100-SXM-80GB")
    times = {g: price(on.name, back, g).time_s for g in (2, 3)}
    assert times[2] == pytest.approx(1.75 * times[3], rel=0.02)
    ratio = kernel_seconds(back, on) / kernel_seconds(forward, on)
    assert times[3] / price(on.name, forward).time_s == pytest.approx(ratio)


def test_key_value_heads_lie_in_order() -> None:
    places = [kv_axis_position(kv, 64) for kv in (1, 2, 4, 8, 16, 24, 32, 63, 64)]
    assert places == sorted(places)
    assert places[:5] == [1, 2, 4, 8, 16]
    assert places[-1] == kv_axis_position(8, 8) == 32


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("gemm_bf16", GEMM_NAMES),
        ("gemm_narrow", GEMM_NAMES),
        ("attention", ATTENTION_NAMES),
        ("experts", EXPERTS_NAMES),
    ],
)
def test_bundled_forests_read_the_features_that_there_are(
    name: str, names: tuple[str, ...]
) -> None:
    forest = shipped_forest(name)
    assert len(set(names)) == len(names)
    assert int(forest.feature.max()) < len(names)
    assert len(forest.roots) >= 500
    rows = np.zeros((3, len(names)), dtype=np.float32)
    assert np.isfinite(forest.at(rows)).all()


@given(st.integers(0, 10_000))
@settings(max_examples=50, deadline=None)
def test_a_forest_is_the_sum_of_its_trees(seed: int) -> None:
    rng = np.random.default_rng(seed)
    forest = random_forest(rng, trees=3, depth=4)
    rows = rng.normal(size=(20, 5)).astype(np.float32)
    expected = [sum(walked(forest, int(root), row) for root in forest.roots) for row in rows]
    assert forest.at(rows) == pytest.approx(expected, abs=1e-5)
    assert forest.at(rows[:0]).shape == (0,)


def random_forest(rng: np.random.Generator, trees: int, depth: int) -> Forest:
    feature: list[int] = []
    threshold: list[float] = []
    left: list[int] = []
    roots = []

    def branch(node: int, levels: int) -> None:
        if levels == 0 or rng.random() < 0.2:
            feature[node], threshold[node], left[node] = 0, math.inf, node
            return
        left[node] = len(left)
        for column in (feature, threshold, left):
            column += [0, 0]
        feature[node], threshold[node] = int(rng.integers(5)), float(rng.normal())
        branch(left[node], levels - 1)
        branch(left[node] + 1, levels - 1)

    for _ in range(trees):
        roots.append(len(left))
        for column in (feature, threshold, left):
            column.append(0)
        branch(roots[-1], depth)
    return Forest(
        feature=np.array(feature, dtype=np.uint8),
        threshold=np.array(threshold, dtype=np.float32),
        left=np.array(left, dtype=np.int32),
        value=rng.normal(size=len(left)).astype(np.float32),
        roots=np.array(roots, dtype=np.int32),
        depth=depth,
    )


def walked(forest: Forest, node: int, row: np.ndarray) -> float:
    while forest.left[node] != node:
        node = int(forest.left[node]) + int(row[forest.feature[node]] >= forest.threshold[node])
    return float(forest.value[node])


@given(st.integers(0, 10_000), st.floats(0, 0.8))
@settings(max_examples=50, deadline=None)
def test_gaps_take_the_residual_of_their_neighbours(seed: int, missing: float) -> None:
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(4, 5, 3))
    log_s = base + 0.3
    log_s[rng.random(size=base.shape) < missing] = np.nan
    log_s[0, 0, 0] = base[0, 0, 0] + 0.3
    assert filled(log_s, base) == pytest.approx(base + 0.3)


@given(st.integers(0, 10_000))
@settings(max_examples=50, deadline=None)
def test_a_grid_is_exact_at_its_points_and_between_its_neighbours(seed: int) -> None:
    rng = np.random.default_rng(seed)
    axes = [sorted(rng.choice(1000, size=4, replace=False) + 1) for _ in range(2)]
    log_s = np.sort(np.sort(rng.normal(size=(4, 4)), axis=0), axis=1)
    grid = LogGrid(axes, log_s)
    for i, j in itertools.product(range(4), range(4)):
        assert grid.at((axes[0][i], axes[1][j])).log_s == pytest.approx(log_s[i, j])
    between = math.sqrt(axes[0][0] * axes[0][1])
    assert grid.at((between, axes[1][2])).log_s == pytest.approx((log_s[0, 2] + log_s[1, 2]) / 2)
    assert grid.at((axes[0][-1] * 7, 0.1)).inside == (axes[0][-1], axes[1][0])


def test_every_device_answers_or_leaves_it_to_the_roofline() -> None:
    kernel = gemm(256, 256, 256, "fp16")
    for name in sorted(devices()):
        found = DeviceLatency(device(name), 3).price(kernel)
        assert found is None or 1e-7 < found.time_s < 1e-3


def experts(op: str = "fused_experts", dtype: str = "bf16", tokens: int = 4096) -> Kernel:
    return Kernel(op, (tokens, 4096, 14336, 2, 8, 8, 1), dtype, 0, 0)


def test_predictions_have_an_interval_and_a_source() -> None:
    norm = Kernel("layer_norm", (2**24,), "bf16", 0, 2**26)
    kernels = (gemm(4096, 4096, 4096, "bf16"), flash(2, 32, 8, 4096), experts(), norm)
    found = predict(kernels, "H100-SXM-80GB")
    assert [x.source for x in found] == ["measured", "measured", "learned", "analytic"]
    for x in found:
        assert x.interval_s[0] < x.time_s < x.interval_s[1]
    widths = [x.interval_s[1] / x.time_s for x in found]
    assert widths == sorted(widths)
    assert found[0].time_s == pytest.approx(176e-6, rel=0.01)
    (learned,) = predict(kernels[:1], "A10-24GB")
    assert learned.source == "learned"
    assert learned.interval_s[1] / learned.time_s > widths[0]


def test_fused_experts_take_longer_with_more_tokens() -> None:
    few, more = predict((experts(), experts(tokens=16384)), "H100-SXM-80GB")
    assert 2 * few.time_s < more.time_s < 8 * few.time_s
    for name in ("cpu", "MI300X-192GB"):
        with pytest.raises(InputError, match=f"fused_experts in bf16 on {name}"):
            predict((experts(),), name)
    with pytest.raises(InputError, match="fp8"):
        predict((experts(dtype="fp8"),), "A100-SXM-80GB")


def test_fused_experts_are_near_what_was_measured() -> None:
    grid = timed_grid("experts")
    times = grid.table("H100-SXM-80GB", "bf16")
    assert times is not None
    models = json.loads((FOLDER / "experts.json").read_text(encoding="utf-8"))["models"]
    errors = []
    for number in range(0, len(models), 3):
        hidden, ffn, topk, count = models[number]
        op = "fused_experts" if topk not in (6, 22) else "fused_experts_ungated"
        for place, tokens in enumerate(grid.axes["tokens"]):
            measured_s = float(times[number, 0, 0, 0, place])
            kernel = Kernel(op, (tokens, hidden, ffn, topk, count, 1, 1), "bf16", 0, 0)
            if math.isfinite(measured_s):
                (found,) = predict((kernel,), "H100-SXM-80GB")
                errors.append(abs(found.time_s / measured_s - 1))
    assert len(errors) > 20
    assert sum(errors) / len(errors) < 0.1


def test_what_is_learned_counts_as_learned() -> None:
    shares = {
        name: sw.simulate("llama-3-8b", name, global_batch=64, seq_len=2048).report.source_share
        for name in ("8xH100", "8xA10")
    }
    assert shares["8xH100"]["measured"] > 0.5 > shares["8xH100"]["learned"] == 0
    assert shares["8xA10"]["learned"] > 0.5
    for share in shares.values():
        assert sum(share.values()) == pytest.approx(1)
