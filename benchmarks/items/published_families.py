"""Published runs of five families against ``plan simulate``, beside two naive baselines.

No constant was fitted to these rows and no calibration is used. The baselines: one MFU for a whole
table, the median that its own published figures imply, so that it was fitted to what it is held
against; and 6 FLOPs a token and active parameter at the dense peak of bf16, lengthened by the
pipeline's bubble, which nothing was fitted to.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.shapes import PLANNING, Evidence, Item, Row, Table, reported
from harness.work import Work

from shardwright.api.published_run import answer, qualifies, question_of
from shardwright.datasets.catalogue.device import device
from shardwright.datasets.published.runs import PublishedRun, published_runs
from shardwright.spec.errors import InputError, NotBuiltError
from shardwright.spec.report import Report

AT_A_GLANCE = 2
PREDICTORS = ("predicted", "constant_mfu", "six_n")
WORDS = ("simulated", "constant MFU", "6·N·tokens and bubble")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A table: its name, the rule in words, and the rule."""

    name: str
    rule: str
    holds: Callable[[PublishedRun], bool]


def _narrow(run: PublishedRun) -> bool:
    return any(word in run.dtype.casefold() for word in ("fp8", "float8", "fp4"))


FAMILIES = (
    Family(
        name="Megatron, experts",
        rule="rows `bridge` with experts, except DeepSeek",
        holds=lambda run: (
            run.source_name == "bridge" and run.experts is not None and "Deep" not in run.model
        ),
    ),
    Family(
        name="DeepSeek-V3",
        rule="rows `bridge` of DeepSeek",
        holds=lambda run: run.source_name == "bridge" and "Deep" in run.model,
    ),
    Family(
        name="torchtitan",
        rule="rows `titan`",
        holds=lambda run: run.source_name == "titan",
    ),
    Family(
        name="context parallelism",
        rule="rows of any source with cp over 1",
        holds=lambda run: (run.cp or 1) > 1,
    ),
    Family(
        name="fp8 and narrower",
        rule="rows in fp8, MXFP8 or NVFP4 of dense models that train whole, any source",
        holds=lambda run: _narrow(run) and run.experts is None and "LoRA" not in run.model,
    ),
)


def run(work: Work) -> Evidence:
    """Price every row of each table."""
    rows, tables = [], []
    for family in FAMILIES:
        runs = [x for x in published_runs() if qualifies(x) and family.holds(x)]
        runs = runs[: work.sized(len(runs), AT_A_GLANCE)]
        found = work.pieces([f"{family.name} {x.id}" for x in runs], _priced)
        priced = [piece for piece in found if piece["published"] is not None]
        fitted = _fit(priced)
        rows += _summary(family, len(runs), priced, fitted)
        tables.append(_table(family, priced))
    return Evidence(rows=rows, tables=tables)


def _priced(key: str) -> dict[str, Any]:
    """Seconds of a row as published and as simulated; without them where it has none."""
    (run,) = (x for x in published_runs() if x.id == key.split()[-1])
    row = {"id": run.id, "what": _what(run), "layout": _layout(run), "published": None}
    try:
        question = question_of(run)
        report = answer(question)
    except (InputError, NotBuiltError):
        return row  # counted, with its reason, by items/coverage.py
    published_s = _published_s(run, question.arguments["global_batch"])
    prediction = report.prediction
    devices = report.plan.cluster.device_count
    peak = device(report.plan.cluster.groups[0].device).peak_flops_per_s["bf16"] * devices
    flops = prediction.flops_per_s_per_device * devices * prediction.step_time_s
    return row | {
        "published": published_s,
        "predicted": prediction.step_time_s,
        "fits": prediction.feasible,
        "at_peak": flops / peak,
        "six_n": _six_n_s(report, peak),
    }


def _published_s(run: PublishedRun, global_batch: int) -> float | None:
    """Seconds of a step, of the batch that was asked for where only tokens a second are printed."""
    if run.seconds is not None or run.tokens_per_s_per_gpu is None:
        return run.seconds
    return global_batch * (run.seq or 0) / (run.tokens_per_s_per_gpu * (run.gpus or 1))


def _six_n_s(report: Report, peak_flops_per_s: float) -> float:
    """6·N·tokens at peak, and (p - 1) / (v·m) of it as bubble."""
    work, program = report.plan.workload, report.plan.program
    active = report.plan.model.active_param_count(work.seq_len)
    chunks = program.chunks_per_stage * program.schedule.microbatches
    bubble = (len(program.stages) - 1) / chunks
    return 6 * active * work.global_batch * work.seq_len / peak_flops_per_s * (1 + bubble)


def _fit(priced: list[dict[str, Any]]) -> float:
    """The median MFU that published seconds imply; each row's seconds at it are added."""
    fitted = statistics.median(piece["at_peak"] / piece["published"] for piece in priced)
    for piece in priced:
        piece["constant_mfu"] = piece["at_peak"] / fitted
    return fitted


def errors(priced: list[dict[str, Any]], predictor: str) -> tuple[float, float, float]:
    """Signed median, median and 90th percentile (nearest rank) of |error|."""
    signed = [piece[predictor] / piece["published"] - 1 for piece in priced]
    size = sorted(map(abs, signed))
    return (
        statistics.median(signed),
        statistics.median(size),
        size[math.ceil(0.9 * len(size)) - 1],
    )


def _summary(family: Family, asked: int, priced: list[dict[str, Any]], fitted: float) -> list[Row]:
    rows = []
    for predictor, words in zip(PREDICTORS, WORDS, strict=True):
        signed, median, ninth = errors(priced, predictor)
        note = f", MFU {fitted:.1%} fitted to this table" if predictor == "constant_mfu" else ""
        rows.append(
            reported(
                f"{family.name}: {words}",
                f"|error| median {median:.1%}, p90 {ninth:.1%} (signed median {signed:+.1%}); "
                f"{len(priced)} of {asked} rows{note}",
                rows=len(priced),
                asked=asked,
                median_ape=median,
                p90_ape=ninth,
                signed_median=signed,
            )
        )
    return rows


def _what(run: PublishedRun) -> str:
    return f"{run.model}, {run.gpus} x {run.hardware}, {run.dtype or 'format not printed'}"


def _layout(run: PublishedRun) -> str:
    degrees = ((name, getattr(run, name)) for name in ("tp", "pp", "vpp", "cp", "ep"))
    split = ", ".join(f"{name} {value}" for name, value in degrees if value and value > 1)
    batch = run.global_batch or "not printed"
    return f"{split or 'data only'}; {run.seq} tokens, micro-batch {run.micro_batch}, batch {batch}"


def _table(family: Family, priced: list[dict[str, Any]]) -> Table:
    rows = []
    for piece in priced:
        seconds = [f"{piece[key]:.3g}" for key in ("published", *PREDICTORS)]
        shares = [f"{piece[key] / piece['published'] - 1:+.0%}" for key in PREDICTORS]
        rows.append(
            (
                piece["id"],
                piece["what"],
                piece["layout"],
                *seconds[:2],
                shares[0] + ("" if piece["fits"] else ", over memory"),
                f"{seconds[2]} ({shares[1]})",
                f"{seconds[3]} ({shares[2]})",
            )
        )
    columns = ("run", "what", "layout", "published s", "predicted s", "error",
               "constant MFU s", "6·N·tokens and bubble s")  # fmt: skip
    return Table(title=f"{family.name}: {family.rule}", columns=columns, rows=rows)


ITEM = Item(
    name="published_families",
    shows="Published runs of five families, predicted uncalibrated beside two naive baselines.",
    target="none: figures as they are.",
    run=run,
    reads=(*PLANNING, "api", "profiler"),
)
