"""Published runs of five families against ``plan simulate``, beside two naive baselines.

No constant was fitted to these rows and no calibration is used. The baselines: one MFU for a whole
table, the median that its own published figures imply, so that it was fitted to what it is held
against; and 6 FLOPs a token and active parameter at the dense peak of bf16, lengthened by the
pipeline's bubble, which nothing was fitted to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.shapes import PLANNING, Evidence, Item, Row, Table, reported
from harness.work import Work

from shardwright.api.validation import priced_run
from shardwright.api.validation.published_run import qualifies
from shardwright.costmodel.explain.accuracy import errors_of, fitted_mfu
from shardwright.datasets.published.runs import PublishedRun, published_runs
from shardwright.spec.errors import InputError, NotBuiltError

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
        pieces = work.pieces([f"{family.name} {x.id}" for x in runs], _priced)
        priced = [piece for piece in pieces if piece["published"] is not None]
        fitted = _fit(priced)
        rows += _summary(family, len(runs), priced, fitted)
        tables.append(_table(family, priced))
    return Evidence(rows=rows, tables=tables)


def _priced(key: str) -> dict[str, Any]:
    """Seconds of a row, published and simulated, if it has any."""
    (run,) = (x for x in published_runs() if x.id == key.split()[-1])
    row = {"id": run.id, "what": _what(run), "layout": _layout(run), "published": None}
    try:
        price = priced_run.price_run(run)
    except (InputError, NotBuiltError):
        return row  # counted, with its reason, by items/coverage.py
    return row | {
        "published": price.measured_s,
        "predicted": price.predicted_s,
        "fits": price.prediction.feasible,
        "at_peak": price.at_peak_s,
        "six_n": price.six_n_s,
    }


def _fit(priced: list[dict[str, Any]]) -> float:
    """Median MFU of the published seconds; adds each row's seconds at it."""
    fitted = fitted_mfu([(piece["at_peak"], piece["published"]) for piece in priced])
    for piece in priced:
        piece["constant_mfu"] = piece["at_peak"] / fitted
    return fitted


def _summary(family: Family, asked: int, priced: list[dict[str, Any]], fitted: float) -> list[Row]:
    rows = []
    for predictor, words in zip(PREDICTORS, WORDS, strict=True):
        errors = errors_of([(piece[predictor], piece["published"]) for piece in priced])
        signed, median, ninth = errors.signed_median, errors.median_ape, errors.p90_ape
        if signed is None or median is None or ninth is None:
            continue
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
