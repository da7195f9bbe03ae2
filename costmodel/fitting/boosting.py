"""Gradient boosting by XGBoost, flattened into the bundled arrays."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays import Floats
from ..kernel_latency.forest import Forest, Rows

SETTINGS: dict[str, Any] = {
    "max_depth": 7,
    "learning_rate": 0.06,
    "subsample": 0.8,
    "colsample_bynode": 0.4,
    "min_child_weight": 5,
    "tree_method": "hist",
    "objective": "reg:squarederror",
    "base_score": 0.0,
    "nthread": 1,
    "seed": 0,
}
TREES = 500
DEEPER: dict[str, Any] = {"trees": 900, "max_depth": 8, "learning_rate": 0.05}
"""For attention, whose kernels change more often with its sizes."""
AGREEMENT = 1e-4
"""Tolerance between a flattened forest and the library's own sum in 32 bits."""


def fit_forest(
    rows: Rows,
    targets: Floats,
    trees: int = TREES,
    weights: Floats | None = None,
    **settings: Any,
) -> Forest:
    """Fit trees to ``targets`` of ``rows``, weighted; equal rows give equal trees.

    Raises:
        RuntimeError: the flattened trees do not give the library's values.
    """
    xgboost = importlib.import_module("xgboost")
    data = xgboost.DMatrix(rows, label=targets, weight=weights)
    model = xgboost.train({**SETTINGS, **settings}, data, num_boost_round=trees)
    forest = _flattened(json.loads(model.save_raw("json"))["learner"])
    sample = rows[:: max(1, len(rows) // 1000)]
    if np.abs(forest.at(sample) - model.predict(xgboost.DMatrix(sample))).max() > AGREEMENT:
        raise RuntimeError("the flattened forest differs from XGBoost's")
    return forest


def _flattened(learner: dict[str, Any]) -> Forest:
    trees = learner["gradient_booster"]["model"]["trees"]
    feature: list[int] = []
    threshold: list[float] = []
    left: list[int] = []
    value: list[float] = []
    roots, depth = [], 0
    for tree in trees:
        start, order, steps = len(feature), *_order(tree)
        roots.append(start)
        depth = max(depth, steps)
        positions = {node: start + number for number, node in enumerate(order)}
        for number, node in enumerate(order):
            child = tree["left_children"][node]
            leaf = child < 0
            feature.append(0 if leaf else tree["split_indices"][node])
            threshold.append(np.inf if leaf else tree["split_conditions"][node])
            left.append(start + number if leaf else positions[child])
            value.append(tree["split_conditions"][node] if leaf else 0.0)
    return Forest(
        feature=np.array(feature, dtype=np.uint8),
        threshold=np.array(threshold, dtype=np.float32),
        left=np.array(left, dtype=np.int32),
        value=np.array(value, dtype=np.float32),
        roots=np.array(roots, dtype=np.int32),
        depth=depth,
    )


def _order(tree: dict[str, Any]) -> tuple[list[int], int]:
    """Nodes level by level, right child after left, and the depth."""
    order, level, depth = [0], [0], 0
    while level := _children(tree, level):
        order += level
        depth += 1
    return order, depth


def _children(tree: dict[str, Any], nodes: Sequence[int]) -> list[int]:
    return [
        child
        for node in nodes
        if tree["left_children"][node] >= 0
        for child in (tree["left_children"][node], tree["right_children"][node])
    ]
