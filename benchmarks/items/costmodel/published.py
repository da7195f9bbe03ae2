"""Published runs of large GPT models against ``plan simulate``, without calibration."""

from __future__ import annotations

import csv
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.paths import ROOT
from harness.processes import plan_command, succeeded
from harness.shapes import PRICING, Evidence, Item, Row, Table, judged, reported
from harness.work import Work

FOLDER = "datasets/published"
SOURCES = {
    "korthikanti_2022": "Korthikanti et al., 2022, tables 3 and 5",
    "smith_2022": "Smith et al., 2022, section 2.4",
}
ANCHOR, WITHIN = "kort-175b-selective", 0.15
"""The row that the project promises, and how near."""
Run = dict[str, str]


def run(work: Work) -> Evidence:
    """Price every published layout."""
    predictions = [(source, row, _predict(row, None)) for source, row in _runs()]
    rows = [_judge(source, row, report) for source, row, report in predictions]
    (anchor,) = (row for _, row, _ in predictions if row["id"] == ANCHOR)
    preset = _predict(anchor, "gpt3-175b")["prediction"]["step_time_s"]
    rows.append(_anchor_row(f"{ANCHOR} with preset gpt3-175b", anchor, preset))
    return Evidence(rows=rows, tables=[_table(predictions)])


def _runs() -> Iterator[tuple[str, Run]]:
    for source in SOURCES:
        with (ROOT / FOLDER / f"{source}.csv").open(encoding="utf-8", newline="") as file:
            yield from ((source, row) for row in csv.DictReader(file))


def _predict(row: Run, preset: str | None) -> dict[str, Any]:
    """The report of ``plan simulate``, as its own process."""
    with tempfile.TemporaryDirectory() as folder:
        typed = Path(folder, "model.json")
        keys = {key: int(row[key]) for key in ("layers", "hidden", "heads", "vocab")}
        typed.write_text(json.dumps({"family": "gpt2", **keys}), encoding="utf-8")
        flags = {
            "model": preset or str(typed),
            "cluster": f"{row['devices']}x{row['device']}",
            "seq-len": row["seq_len"],
            "stack": "megatron",
            "attention": "unfused",
            "calibration": "none",
            **{k.replace("_", "-"): row[k] for k in (
                "dtype", "tp", "pp", "vpp", "sp", "recompute", "micro_batch", "global_batch",
            )},
        }  # fmt: skip
        words = [word for flag, value in flags.items() for word in (f"--{flag}", value)]
        done = succeeded([*plan_command(), "simulate", *words, "--json", "-"])
    report: dict[str, Any] = json.loads(done.out)
    return report


def _judge(source: str, row: Run, report: dict[str, Any]) -> Row:
    predicted_s = report["prediction"]["step_time_s"]
    if row["id"] == ANCHOR:
        return _anchor_row(row["id"], row, predicted_s)
    name = f"{row['id']} ({SOURCES[source]})"
    if not row["step_time_s"]:
        why = "the published figure is kept apart as a check"
        return reported(name, f"predicted {predicted_s:.2f} s; {why}", predicted_s=predicted_s)
    published_s = float(row["step_time_s"])
    error = predicted_s / published_s - 1
    return reported(
        name,
        f"predicted {predicted_s:.2f} s, published {published_s:g} s: {error:+.1%}",
        predicted_s=predicted_s,
        published_s=published_s,
        error=error,
    )


def _anchor_row(name: str, row: Run, predicted_s: float) -> Row:
    published_s = float(row["step_time_s"])
    error = predicted_s / published_s - 1
    return judged(
        f"{name} ({SOURCES['korthikanti_2022']})",
        f"predicted {predicted_s:.2f} s, published {published_s:g} s: {error:+.1%}",
        f"within {WITHIN:.0%}",
        abs(error) <= WITHIN,
        predicted_s=predicted_s,
        published_s=published_s,
        error=error,
    )


def _table(predictions: list[tuple[str, Run, dict[str, Any]]]) -> Table:
    rows = []
    for _, row, report in predictions:
        prediction = report["prediction"]
        terms = prediction["breakdown_s"]
        shares = sorted(terms, key=lambda term: -terms[term])[:5]
        low, high = prediction["step_time_interval_s"]
        layout = f"tp {row['tp']}, pp {row['pp']}, vpp {row['vpp']}, sp {row['sp']}"
        largest = max(memory["reserved_bytes"] for memory in prediction["memory"])
        rows.append(
            (
                row["id"],
                f"{row['devices']} x {row['device']}",
                f"{layout}, {row['recompute']}, batch {row['global_batch']}",
                f"{prediction['step_time_s']:.2f} ({low:.2f} to {high:.2f})",
                row["step_time_s"] or "kept apart",
                f"{prediction['mfu']:.1%} / {prediction['hfu']:.1%}",
                f"{largest / 2**30:.1f} GiB" + ("" if prediction["feasible"] else ", over"),
                ", ".join(f"{t} {terms[t]:.2f}" for t in shares if terms[t] > 0),
            )
        )
    columns = ("run", "devices", "layout", "predicted s", "published s", "MFU / HFU", "reserved",
               "largest terms, s")  # fmt: skip
    return Table(title="Every run", columns=columns, rows=rows)


ITEM = Item(
    name="published",
    shows="Step times of published GPT runs, predicted without calibration.",
    target=(
        "GPT-3 175B with selective recomputation within 15 % of 13.75 s; the rest is reported and "
        "was never fitted."
    ),
    run=run,
    reads=(*PRICING, "api", "profiler", FOLDER, "benchmarks/harness/processes.py"),
)
