"""SDP4Bit's table 2: plain and quantized runs of five GPTs, predicted.

Jia et al., NeurIPS 2024 (arXiv:2410.15526), table 2, 16 nodes of 8 H800; settings from the authors'
scripts: sequences of 2048, one micro-batch of one sample, distributed optimizer, selective
recomputation, no overlap. One 400 Gb/s adapter a node is inferred from the plain rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from harness.shapes import PLANNING, Evidence, Item, Table, judged, reported
from harness.work import Work

import shardwright as sw

CLUSTER, DEVICES = "16x8xH800-80GB@1x400G-IB", 128
WORD = "sdp4bit"
PLAIN_WITHIN, WITHIN = 0.15, 0.20


class Run(NamedTuple):
    """A published pair of runs: sizes of the model, and TFLOP/s of a device."""

    name: str
    layers: int
    hidden: int
    heads: int
    tp: int
    plain: float
    quantized: float


RUNS = (
    Run("1.3B", 24, 2048, 16, 1, 69.1, 106.0),
    Run("2.7B", 32, 2560, 32, 1, 71.9, 116.9),
    Run("6.7B", 32, 4096, 32, 4, 26.2, 77.9),
    Run("13B", 40, 5120, 40, 8, 13.9, 53.5),
    Run("18B", 40, 6144, 48, 8, 14.5, 59.2),
)
JUDGED = ("13B", "18B")


def predicted(one: Run, **techniques: str) -> tuple[float, float]:
    """Seconds of a step, and TFLOP/s of a device."""
    model = {
        "name": one.name, "layers": one.layers, "hidden": one.hidden, "ffn": 4 * one.hidden,
        "heads": one.heads, "kv_heads": one.heads, "head_dim": one.hidden // one.heads,
        "vocab": 50304, "norm": "layernorm", "activation": "gelu", "position": "learned",
        "tie_embeddings": True,
    }  # fmt: skip
    dp = DEVICES // one.tp
    settings: dict[str, Any] = {
        "global_batch": dp, "seq_len": 2048, "tp": one.tp, "dp": dp, "micro_batch": 1,
        "sp": "megatron" if one.tp > 1 else "none", "shard": "zero1", "recompute": "selective",
        "stack": "megatron", "overlap": "none", "calibration": "none", "techniques": techniques,
    }  # fmt: skip
    prediction = sw.simulate(model, CLUSTER, **settings).report.prediction
    return prediction.step_time_s, prediction.flops_per_s_per_device / 1e12


def run(work: Work) -> Evidence:
    """Predict every pair."""
    rows, lines = [], []
    for one in RUNS:
        plain_s, plain = predicted(one)
        quantized_s, quantized = predicted(one, quantized_communication=WORD)
        ratio, published = plain_s / quantized_s, one.quantized / one.plain
        errors = plain / one.plain - 1, quantized / one.quantized - 1, ratio / published - 1
        lines.append(
            (
                one.name,
                *(f"{value:.1f}" for value in (one.plain, plain, one.quantized, quantized)),
                f"{published:.2f}",
                f"{ratio:.2f}",
                f"{quantized_s * (quantized / one.quantized - 1):+.3f}",
            )
        )
        rows.append(
            judged(
                f"{one.name}: plain",
                f"{errors[0]:+.1%}",
                f"within {PLAIN_WITHIN:.0%}",
                abs(errors[0]) <= PLAIN_WITHIN,
                error=errors[0],
            )
        )
        text = f"{errors[1]:+.1%}, its ratio {errors[2]:+.1%}"
        if one.name in JUDGED:
            worst = max(abs(errors[1]), abs(errors[2]))
            rows.append(
                judged(
                    f"{one.name}: {WORD}",
                    text,
                    f"both within {WITHIN:.0%}",
                    worst <= WITHIN,
                    error=errors[1],
                    ratio_error=errors[2],
                )
            )
        else:
            rows.append(reported(f"{one.name}: {WORD}", text, error=errors[1]))
    columns = ("model", "plain, TFLOP/s", "predicted", "SDP4Bit, TFLOP/s", "predicted", "ratio",
               "predicted", "seconds that are missing")  # fmt: skip
    return Evidence(
        rows=rows, tables=[Table(title="table 2 of SDP4Bit", columns=columns, rows=lines)]
    )


ITEM = Item(
    name="quantized_communication",
    shows="Plain and quantized runs of SDP4Bit's table 2, predicted.",
    target="plain within 15 %; 13B and 18B with SDP4Bit, and their ratios, within 20 %.",
    run=run,
    reads=PLANNING,
)
