"""Kernel prices on sizes, devices, heads and models not fitted to."""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Iterable, Mapping

from harness.shapes import Evidence, Item, Row, Table, judged, reported, unmeasured
from harness.work import Work

Scores = Mapping[str, dict[str, float]]


def run(work: Work) -> Evidence:
    """Fit and score every split; each is a piece of its own."""
    if importlib.util.find_spec("xgboost") is None:
        return Evidence(rows=[unmeasured("every split", "needs the extra fit (xgboost)")])
    from shardwright.costmodel.fitting.scores import SPLITS

    names = ["gemm, sizes"] if work.quick else list(SPLITS)
    scores: Scores = dict(zip(names, work.pieces(names, _scored), strict=True))
    rows = [_sizes(scores)] if work.quick else [_sizes(scores), *_judged(scores)]
    return Evidence(rows=rows, tables=[_table(scores)])


def _scored(name: str) -> dict[str, float]:
    from shardwright.costmodel.fitting.scores import SPLITS

    return SPLITS[name]()._asdict()


def _sizes(scores: Scores) -> Row:
    return _row("products, bf16, sizes kept back on known devices", scores, ["gemm, sizes"], 0.04)


def _judged(scores: Scores) -> Iterable[Row]:
    yield _reported(
        "products, bf16, a line of the grid left out, interpolated", scores, "gemm, between sizes"
    )
    yield _row("products, bf16, Hopper kept back", scores, ["gemm, Hopper"], 0.10)
    yield _row("products, bf16, Blackwell kept back", scores, ["gemm, Blackwell"], 0.10)
    for name in ("A100-SXM-80GB", "L40S-48GB"):
        share = scores[f"gemm, presets on {name}"]
        yield judged(
            f"products of the presets, {name} kept back: summed error over summed seconds",
            f"{share['seconds']:.1%} of {share['rows']:.0f} products (plain mean error "
            f"{share['mape']:.1%})",
            "at most 15%",
            share["seconds"] <= 0.15,
            seconds=share["seconds"],
            mape=share["mape"],
        )
    alone = [n for n in scores if n.startswith("attention, ") and n.endswith("GB")]
    yield _row("attention, each training device kept back alone", scores, alone, 0.09)
    families = ["attention, Hopper", "attention, Blackwell"]
    yield _row("attention, Hopper or Blackwell kept back", scores, families, 0.09)
    heads = [n for n in scores if n.endswith(" heads") and "between" not in n]
    yield _row("attention, each number of heads kept back", scores, heads, 0.06)
    yield _reported("attention, heads left out, interpolated", scores, "attention, between heads")
    models = [n for n in scores if n.startswith("experts, ") and not n.endswith(("even", "GB"))]
    yield _row("fused experts, a whole model kept back", scores, models, 0.15)
    even = [n for n in scores if n.endswith(", even")]
    yield _row("fused experts, a whole model kept back, even routing", scores, even, 0.15)


def _row(figure: str, scores: Scores, names: list[str], most: float) -> Row:
    mape = statistics.fmean(scores[name]["mape"] for name in names)
    rows = sum(scores[name]["rows"] for name in names)
    return judged(
        f"{figure}: mean error",
        f"{mape:.1%} of {rows:.0f} rows" + (f", {len(names)} splits" if len(names) > 1 else ""),
        f"at most {most:.0%}",
        mape <= most,
        mape=mape,
    )


def _reported(figure: str, scores: Scores, name: str) -> Row:
    split = scores[name]
    return reported(
        f"{figure}: mean error", f"{split['mape']:.1%} of {split['rows']:.0f}", mape=split["mape"]
    )


def _table(scores: Scores) -> Table:
    head = ["kept back", "rows", "mean error", "summed error", "four in five below"]
    return Table(
        title="every split, fitted from scratch without what is kept back",
        columns=head,
        rows=[
            [
                name,
                f"{scores[name]['rows']:.0f}",
                f"{scores[name]['mape']:.1%}",
                f"{scores[name]['seconds']:.1%}",
                f"{scores[name]['half_width']:.1%}",
            ]
            for name in scores
        ],
    )


ITEM = Item(
    name="kernels",
    shows="Prices of products, attention and experts on what they were not fitted to.",
    target="mean error: sizes 4 %, a family of devices 10 % (attention 9 %), heads 6 %, a model of "
    "experts 15 %; A100 and L40S kept back: 15 % of the seconds of the presets' products.",
    run=run,
    reads=("costmodel/fitting", "costmodel/kernel_latency", "datasets/measured",
           "datasets/catalogue", "costmodel/kernel_latency/roofline.py"),
)  # fmt: skip
