"""The catalogue of machines on a terminal: devices, nodes, fabrics, levels."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.text import Text

from ...datasets.catalogue.source_kind import KINDS
from ...spec.units import GIB, format_bytes
from .console import columns, heading

COUNTED = ("measured", "sheet", "derived", "assumed")
"""Headers of the columns that count figures by :data:`KINDS`."""


def print_clusters(out: Console, document: dict[str, Any]) -> None:
    """Print devices, nodes and fabrics, and how they form a cluster."""
    local = document["local"]
    memory = format_bytes(local["memory_bytes"])
    out.print(f"this machine: {local['cluster']} ({local['cores']} cores, {memory})")
    out.print("others: " + ", ".join(document["forms"]) + "; such as 16x8xH100-80GB@8x400G-IB")
    _print_devices(out, document["devices"])
    _print_nodes(out, document["nodes"])
    _print_fabrics(out, document["fabrics"])
    _print_instances(out, document["instances"])
    heading(out, "link levels, innermost first")
    for item in document["levels"]:
        out.print(f"{item['level']}: {item['joins']}")
    differ = len(document["disagreements"])
    out.print()
    out.print(
        "measured, sheet (data sheet, standard), derived, assumed: how many figures are known so;"
    )
    out.print(f"plan clusters NAME has each with its source; on {differ} of them sources disagree")


def print_about(out: Console, document: dict[str, Any]) -> None:
    """Print an entry's figures with sources, or a cluster's levels."""
    if "cluster" in document:
        for item in document["instances"]:
            out.print(f"{item['name']} of {item['cloud']}: {item['text']} ({item['source']})")
        _print_levels(out, document["cluster"])
        return
    first = next(key for key in ("devices", "nodes", "fabrics") if document[key])
    for item in document[first]:
        _print_figures(out, item)
    if first == "devices":
        _print_nodes(out, document["nodes"])
    if first != "fabrics":
        _print_fabrics(out, document["fabrics"])
    _print_disagreements(out, document["disagreements"])


def _counts(item: dict[str, Any]) -> list[str]:
    counts = Counter(item["kinds"].values())
    return [str(counts[kind]) if counts[kind] else "-" for kind in KINDS]


def _print_devices(out: Console, devices: list[dict[str, Any]]) -> None:
    heading(out, "devices (TFLOP/s dense; * the usual memory size)")
    numbers = ("GiB", "TB/s", "fp32", "16-bit", "fp8", "nvfp4", *COUNTED)
    table = columns("name", *numbers, right=numbers)
    families = Counter(item["family"] for item in devices)
    for item in devices:
        peaks = item["peak_flops_per_s"]
        sixteen = peaks.get("bf16", peaks.get("fp16"))
        rates = [peaks["fp32"], sixteen, peaks.get("fp8"), peaks.get("nvfp4")]
        several = item["usual"] and families[item["family"]] > 1
        table.add_row(
            item["name"] + (" *" if several else ""),
            f"{item['capacity_bytes'] / GIB:.4g}",
            f"{item['memory_bandwidth_bytes_per_s'] / 1e12:.3g}",
            *[_tera(rate) for rate in rates],
            *_counts(item),
        )
    out.print(table)


def _tera(rate: float | None) -> str:
    """Format a rate in 10^12, four digits or whole; - for none."""
    if rate is None:
        return "-"
    return f"{rate / 1e12:.4g}" if rate < 1e15 else f"{rate / 1e12:.0f}"


def _print_nodes(out: Console, nodes: list[dict[str, Any]]) -> None:
    heading(out, "nodes")
    numbers = ("devices", "rack", "assumed")
    table = columns("name", "devices", "rack", "link", "network", "usual for", "assumed",
                    right=numbers)  # fmt: skip
    for item in nodes:
        usual = ", ".join(item["usual_for"])
        cells = (item["link"], item["network"], usual, _counts(item)[-1])
        rack = str(item["devices_per_rack"] or "-")
        table.add_row(item["name"], str(item["devices_per_node"]), rack, *cells)
    out.print(table)


def _print_fabrics(out: Console, fabrics: list[dict[str, Any]]) -> None:
    heading(out, "fabrics (GB/s one direction, of a device's link or an adapter)")
    numbers = ("GB/s", "adapters", "efficiency")
    table = columns("name", "joins", "technology", *numbers, "known", "latency", right=numbers)
    for item in fabrics:
        joins = "devices" if item["scope"] == "node" else "nodes"
        speed = f"{item['bandwidth_bytes_per_s'] / 1e9:.4g}"
        rest = (str(item["adapters"] or "-"), f"{item['efficiency']:.2f}")
        source_kinds = [item["kinds"][figure] for figure in ("efficiency", "latency_s")]
        technology = item["technology"].replace("_", " ")
        table.add_row(item["name"], joins, technology, speed, *rest, *source_kinds)
    out.print(table)


def _print_instances(out: Console, instances: list[dict[str, Any]]) -> None:
    heading(out, "instances of clouds, as 4xNAME; plan clusters NAME says what one is")
    for cloud, items in groupby(instances, key=lambda item: str(item["cloud"])):
        out.print(f"{cloud}: {', '.join(item['name'] for item in items)}")


def _print_figures(out: Console, item: dict[str, Any]) -> None:
    out.print(Text(item["name"], style="bold"))
    if item.get("note"):
        out.print(item["note"])
    table = columns("figure", "value", "known", "source", right=("value",))
    for figure, source in item["sources"].items():
        kind = item["kinds"][figure]
        table.add_row(figure, _value(item, figure), kind, source)
    out.print(table)


def _value(item: dict[str, Any], figure: str) -> str:
    name, _, part = figure.partition(".")
    if name not in item:  # curves have too many numbers to print
        return ""
    return figure_text(name, item[name][part] if part else item[name])


def figure_text(name: str, value: object) -> str:
    """Format a figure's value: lists with commas, bytes in GiB."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    if not isinstance(value, (int, float)):
        return str(value)
    return format_bytes(value) if name.endswith("_bytes") else f"{value:.6g}"


def _print_disagreements(out: Console, disagreements: list[dict[str, Any]]) -> None:
    if not disagreements:
        return
    heading(out, "where sources disagree")
    for item in disagreements:
        out.print(f"{item['subject']} {item['figure']}: {item['taken']:.6g}: {item['why']}")
        for source, value in item["values"]:
            out.print(f"  {value:.6g}  {source}")


def _print_levels(out: Console, cluster: dict[str, Any]) -> None:
    out.print(cluster["text"])
    numbers = ("devices", "GB/s", "oversub", "efficiency", "latency")
    table = columns("group", "level", "fabric", *numbers, "known", right=numbers)
    for item in cluster["levels"]:
        table.add_row(
            item["device_group"],
            item["level"],
            item["fabric"],
            str(item["group_size"]),
            f"{item['bandwidth_bytes_per_s'] / 1e9:.4g}",
            f"{item['oversubscription']:g}",
            f"{item['efficiency']:.2f}",
            f"{item['latency_s'] * 1e6:.3g} us",
            item["kinds"]["efficiency"],
        )
    out.print(table)
    out.print("GB/s: of one device, one direction; known: the efficiency")
