"""Fitting's own parts that need no library: what is known blind, flattened trees, scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shardwright.costmodel.fitting.boosting import _flattened
from shardwright.costmodel.fitting.held_out_devices import ELSEWHERE, LIMIT_W, untimed_devices
from shardwright.costmodel.fitting.preset_products import TOKENS, preset_products
from shardwright.costmodel.fitting.samples import NOT_GATED, expert_models
from shardwright.costmodel.fitting.scores import MODELS, SPLITS, score
from shardwright.datasets.catalogue.device import device
from shardwright.datasets.measured.timed_grid import timed_grid

FITTED = sorted({name for name, _ in timed_grid("gemm").tables})


@pytest.mark.parametrize("target", FITTED)
def test_a_device_that_is_scored_has_no_figure_of_its_own_tables(target: str) -> None:
    known = untimed_devices((target,), FITTED)
    others = [device(name) for name in FITTED if name != target]
    assert [known(name) for name in FITTED if name != target] == others
    seen, own = known(target), device(target)
    assert seen.memory_ceiling == np.median([x.memory_ceiling for x in others])
    assert seen.kernel_launch_s == np.median([x.kernel_launch_s for x in others])
    assert seen.matmul_ceiling == pytest.approx(ELSEWHERE.get(target, seen.matmul_ceiling))
    assert seen.peak_flops_per_s == own.peak_flops_per_s
    assert seen.memory_bandwidth_bytes_per_s == own.memory_bandwidth_bytes_per_s


def test_cards_reach_what_their_power_allows() -> None:
    """The numbers of the docstring."""
    seen = [untimed_devices((name,), FITTED)(name).matmul_ceiling for name in sorted(LIMIT_W)]
    assert seen == pytest.approx([0.67, 0.80], abs=0.006)


def test_every_fitted_device_has_a_blind_ceiling() -> None:
    assert sorted([*ELSEWHERE, *LIMIT_W]) == FITTED


def leaf(value: float) -> dict[str, Any]:
    return {"value": value}


def branch(feature: int, threshold: float, left: Any, right: Any) -> dict[str, Any]:
    return {"feature": feature, "threshold": threshold, "left": left, "right": right}


def random_tree(random: np.random.Generator, depth: int) -> dict[str, Any]:
    if depth == 0 or random.random() < 0.3:
        return leaf(float(np.float32(random.normal())))
    threshold = float(np.float32(random.normal()))
    children = (random_tree(random, depth - 1) for _ in range(2))
    return branch(int(random.integers(3)), threshold, *children)


def as_xgboost(tree: dict[str, Any]) -> dict[str, Any]:
    """The arrays in which XGBoost writes a tree, in the order in which it grows: depth first."""
    found: dict[str, Any] = {
        name: []
        for name in ("left_children", "right_children", "split_indices", "split_conditions")
    }

    def add(node: dict[str, Any]) -> int:
        number = len(found["left_children"])
        for values in found.values():
            values.append(-1)
        if "value" in node:
            found["split_indices"][number] = 0
            found["split_conditions"][number] = node["value"]
            return number
        found["split_indices"][number] = node["feature"]
        found["split_conditions"][number] = node["threshold"]
        found["left_children"][number] = add(node["left"])
        found["right_children"][number] = add(node["right"])
        return number

    add(tree)
    return found


def value_of(tree: dict[str, Any], row: NDArray[np.float32]) -> float:
    while "value" not in tree:
        below = row[tree["feature"]] < np.float32(tree["threshold"])
        tree = tree["left" if below else "right"]
    return float(tree["value"])


@pytest.mark.parametrize("seed", range(10))
def test_flattened_trees_say_what_the_trees_do(seed: int) -> None:
    random = np.random.default_rng(seed)
    trees = [random_tree(random, 5) for _ in range(8)] + [leaf(0.5)]
    model = {"trees": [as_xgboost(tree) for tree in trees]}
    forest = _flattened({"gradient_booster": {"model": model}})
    thresholds = forest.threshold[np.isfinite(forest.threshold)]
    rows = random.normal(size=(50, 3)).astype(np.float32)
    rows[: len(thresholds[:10]), 0] = thresholds[:10]  # what equals a threshold goes right
    expected = [sum(value_of(tree, row) for tree in trees) for row in rows]
    assert forest.at(rows) == pytest.approx(expected, abs=1e-5)


def test_products_of_presets_come_with_their_gradients() -> None:
    found = preset_products()
    assert (2048, 4096, 28672) in found  # gate and up projection of llama-3-8b
    forward = [shape for shape in found if shape[0] in TOKENS]
    assert len(forward) > 1000
    for m, k, n in forward:
        assert {(k, m, n), (n, m, k)} & found  # of weights


def test_scores_are_errors_of_rows_and_of_seconds() -> None:
    found = score(np.array([1.1, 2.0, 6.0]), np.array([1.0, 2.0, 8.0]))
    assert found.rows == 3
    assert found.mape == pytest.approx((0.1 + 0 + 0.25) / 3)
    assert found.seconds == pytest.approx(2.1 / 11)
    assert found.half_width == pytest.approx(np.quantile([0.1, 0, 0.25], 0.8))


def test_splits_name_models_that_the_grid_has() -> None:
    assert set(MODELS.values()) | set(NOT_GATED) <= set(expert_models())
    assert all(callable(split) for split in SPLITS.values())
