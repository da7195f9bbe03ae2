"""Basis of a prediction on a terminal: totals, then tables."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from ...datasets.catalogue.source_kind import KINDS
from ...spec.report.report import Assumption
from ...spec.units import format_count, format_seconds
from ..views.report_text import percent
from .catalogue import COUNTED, figure_text
from .console import columns, heading
from .plan import print_assumptions

SHOWN_KINDS = ("measured", "assumed", "typed")
"""Figures that are listed one by one; the others are counted."""
YES, NO = "yes", "no"
FAR = 5.0
"""A distance from which on a run says little: thirty times the size, or another sort of device."""


def print_doctor(out: Console, document: dict[str, Any]) -> None:
    """Print measured, learned and assumed figures of a model on a cluster."""
    _print_sums(out, document)
    _print_layers(out, document["model"])
    _print_parts(out, document["figures"])
    for kind in SHOWN_KINDS:
        _print_figures(out, document["figures"], kind)
    for row in document["prices"]:
        _print_prices(out, document, row)
    _print_nearest(out, document["nearest"])
    out.print()
    print_assumptions(out, [Assumption(**note) for note in document["assumptions"]])
    out.print("--json - has every figure with its source; plan clusters NAME those of one device")


def _print_sums(out: Console, document: dict[str, Any]) -> None:
    model, nearest = document["model"], document["nearest"]["runs"]
    size = f"{model['name']} ({format_count(model['parameters'])} parameters"
    if model["active_parameters"] != model["parameters"]:
        size += f", {format_count(model['active_parameters'])} active"
    out.print(f"{size}) on {document['cluster']['text']}, priced as {document['stack']}")
    kinds = document["figures"]["kinds"]
    counts = [f"{n} {kind}" for kind, n in kinds.items() if n or kind in KINDS]
    out.print(f"figures: of {document['figures']['count']}, " + ", ".join(counts))
    for row in document["prices"]:
        where = f" on {row['device']}" if len(document["prices"]) > 1 else ""
        shares = ", ".join(f"{share * 100:.0f} % {name}" for name, share in row["share"].items())
        out.print(f"prices{where}: {shares}")
    out.print(f"products and attention: {document['learned']}")
    out.print(f"calibration: {_calibration(document['calibration'])}")
    out.print(f"layers: {_layers(model)}")
    why = document["cluster"]["here"] or model["run"]
    out.print("runs here: " + (f"no: {why}" if why else "yes, with a plan that fits"))
    first = nearest[0] if nearest else None
    out.print("nearest published run: " + (_nearest_text(first) if first else "none"))


def _calibration(calibration: dict[str, Any]) -> str:
    if "why" in calibration:
        return f"{calibration['name']}; {calibration['why']}"
    if "factors" in calibration:
        factors = ", ".join(f"{name} {x:g}" for name, x in calibration["factors"].items() if x != 1)
        rows = len(calibration["fitted_on"])
        return f"{calibration['name']}: {factors or 'as shipped'}; {rows} rows"
    counts = f"{calibration['kernels']} kernels and {calibration['collectives']} collectives"
    source = f"{calibration['name']} of {calibration['measured_at']}"
    return f"{source}: {counts}, {calibration['ranks']} ranks at work"


def _layers(model: dict[str, Any]) -> str:
    """``82, all planned, all simulated, 2 run``."""
    rows = model["layers"]
    every = sum(row["count"] for row in rows)
    parts = [str(every)]
    for name in ("planned", "simulated", "run"):
        able = sum(row["count"] for row in rows if row[name])
        parts.append(f"{'all' if able == every else able} {name}")
    return ", ".join(parts)


def _nearest_text(run: dict[str, Any]) -> str:
    far = " (far)" if run["distance"] >= FAR else ""
    return (
        f"{run['model']} on {run['devices']} {run['hardware']}, {run['dtype']}, "
        f"{format_seconds(run['step_time_s'])} a step; distance {run['distance']:.2g}{far}"
    )


def _print_layers(out: Console, model: dict[str, Any]) -> None:
    heading(out, "layers")
    several = len({row["tower"] for row in model["layers"]}) > 1
    table = columns("number", "kind", "planned", "simulated", "run")
    for row in model["layers"]:
        tower = f"{row['tower']} " if several else ""
        cells = [YES if row[name] else NO for name in ("planned", "simulated", "run")]
        why = next(iter(row["why_not"].values()), "")
        cells[-1] += f": {why}" if why else ""
        table.add_row(row["layers"], tower + row["what"], *cells)
    out.print(table)


def _print_parts(out: Console, figures: dict[str, Any]) -> None:
    heading(out, "how the figures are known")
    headers = (*COUNTED, "typed")
    table = columns("part", "of", *headers, right=headers)
    for row in figures["by_part"]:
        counts = [str(n) if n else "-" for n in row["kinds"].values()]
        table.add_row(row["part"], row["of"], *counts)
    table.add_row("sum", "", *[str(n) if n else "-" for n in figures["kinds"].values()])
    out.print(table)


def _print_figures(out: Console, figures: dict[str, Any], kind: str) -> None:
    rows = [row for row in figures["rows"] if row["kind"] == kind]
    if not rows:
        return
    heading(out, f"{kind} figures")
    table = columns("of", "figure", "value", "source", right=("value",))
    for row in rows:
        source = row["source"].removeprefix(f"{kind}: ")
        table.add_row(row["of"], row["figure"], figure_text(row["figure"], row["value"]), source)
    out.print(table)


def _print_prices(out: Console, document: dict[str, Any], row: dict[str, Any]) -> None:
    work, split = document["workload"], f"tp {row['tp']}"
    split += " + sp" if row["sp"] == "megatron" else ""
    split += f", ep {row['ep']}" if row["ep"] > 1 else ""
    title = (
        f"prices of {work['micro_batch']} x {work['seq_len']} tokens and an update on "
        f"{row['device']} ({split}, dp {row['dp']}, {row['shard']})"
    )
    heading(out, title)
    sources = tuple(row["share"])
    table = columns("term", "alone", *sources, right=("alone", *sources))
    for term, term_row in row["terms"].items():
        shares = [percent(term_row[source] / term_row["seconds"]) for source in sources]
        table.add_row(term.replace("_", " "), format_seconds(term_row["seconds"]), *shares)
    total_s = sum(term_row["seconds"] for term_row in row["terms"].values())
    table.add_row("sum", format_seconds(total_s), *[percent(n) for n in row["share"].values()])
    out.print(table)


def _print_nearest(out: Console, nearest: dict[str, Any]) -> None:
    counts = f"{nearest['compared']} of {nearest['rows']} compared"
    heading(out, f"nearest published measured runs ({counts})")
    table = columns("run", "model", "on", "layout", "step", "MFU", "apart", right=("step", "MFU"))
    for run in nearest["runs"]:
        mfu = "-" if run["mfu"] is None else percent(run["mfu"])
        apart = ", ".join(f"{part.replace('_', ' ')} {n:.2g}" for part, n in run["apart"].items())
        machine = f"{run['devices']} {run['hardware']}, {run['dtype']}"
        table.add_row(run["id"], run["model"], machine, _layout(run),
                      format_seconds(run["step_time_s"]), mfu, apart or "0")  # fmt: skip
    out.print(table)
    for run in nearest["runs"]:
        out.print(f"{run['id']}: {run['source']}")
    out.print(f"apart: {nearest['rule']}")


def _layout(run: dict[str, Any]) -> str:
    """Format degrees above 1 and samples x tokens.

    For example ``tp 4, pp 8, vpp 5, zero1, 256 x 8192``.
    """
    layout = run["layout"]
    degrees = [f"{n} {layout[n]}" for n in ("tp", "pp", "vpp", "cp", "ep") if layout[n] > 1]
    batch = f"{run['global_batch'] or '?'} x {run['seq_len']}"
    return ", ".join([*degrees, layout["shard"], batch])
