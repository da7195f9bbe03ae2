"""Proven bounds of pipelines with unequal stages.

Let t_ks be the minimum seconds of a layer of class k, forward and backward of one micro-batch,
under any legal strategy on stage s, n_k the number of such layers, and x_ks those on stage s, so
w_s = Σ_k t_ks·x_ks. A step takes, with fill and drain,

    T ≥ m·w_s + Σ_{s' < s} w_s'    for every stage s,

and m·w_s where passes overlap or are split. For any λ_s ≥ 0 with Σ λ_s = 1 these add up to T ≥ Σ_s
μ_s·w_s with μ_s = m·λ_s + Σ_{s' > s} λ_s', and whatever x is, to

    T ≥ Σ_k n_k · min_s μ_s·t_ks.

λ is the best if all layers were of the class with most work: with c_s = 1/t_s the stages that work
are those of V_s = max(V_{s+1}, c_s/m + (1 - 1/m)·V_{s+1}), the worth of a second of the stages
from s on. Any λ is sound.

A stage of several device groups takes as long as any one of them: the slowest for the main class
stands for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

ROUNDING = 1e-9
"""The same sums in another order differ by less than this fraction."""


def stage_weights(seconds: Sequence[float], microbatches: int, fills: bool) -> list[float]:
    """μ_s of every stage.

    Args:
        seconds: t_s of the class with most work; infinite where a stage cannot hold it.
        microbatches: m of a step.
        fills: True if stages wait for those before them.
    """
    rates = [0.0 if math.isinf(s) else 1 / s for s in seconds]
    m = microbatches
    if not fills:
        total = sum(rates)
        return [m * rate / total for rate in rates]
    worth, active = 0.0, [False] * len(rates)
    for s in range(len(rates) - 1, -1, -1):
        working = rates[s] / m + (1 - 1 / m) * worth
        active[s] = working >= worth and rates[s] > 0
        worth = max(worth, working)
    shares, later = [0.0] * len(rates), 0.0
    for s in range(len(rates) - 1, -1, -1):
        if active[s]:
            shares[s] = max(0.0, (rates[s] - later) / m)
            later += shares[s]
    weights, after = [0.0] * len(rates), 0.0
    for s in range(len(rates) - 1, -1, -1):
        weights[s] = (m * shares[s] + after) / later
        after += shares[s]
    return weights


def fill_drain_bound_s(
    layer_classes: Sequence[tuple[int, Sequence[float]]], microbatches: int, fills: bool
) -> float:
    """A proven lower bound on the passes of a step.

    Args:
        layer_classes: layers of a class, and t_ks of every stage.
        microbatches: m of a step.
        fills: True if stages wait for those before them.

    Returns:
        Seconds; infinite where a class has no stage that may hold it.
    """
    if any(all(math.isinf(s) for s in seconds) for _, seconds in layer_classes):
        return math.inf
    main = max(layer_classes, key=lambda entry: entry[0] * min(entry[1]))
    mu = stage_weights(main[1], microbatches, fills)
    total = 0.0
    for count, seconds in layer_classes:
        total += count * min(
            weight * s for weight, s in zip(mu, seconds, strict=True) if not math.isinf(s)
        )
    return total * (1 - ROUNDING)
