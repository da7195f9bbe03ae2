"""The catalogues on a terminal."""

from __future__ import annotations

import re
from typing import Any

from rich.console import Console
from rich.text import Text

from ..spec.units import GIB, format_bytes, format_count
from .render_console import columns


def print_models(out: Console, document: dict[str, Any]) -> None:
    """Print the presets, one a line."""
    numbers = ("parameters", "layers", "hidden", "ffn", "heads", "kv", "vocab")
    table = columns("model", *numbers, "source", right=numbers)
    for item in document["models"]:
        table.add_row(
            item["name"],
            format_count(item["parameters"]),
            *[str(item[key]) for key in ("layers", "hidden", "ffn", "heads", "kv_heads", "vocab")],
            re.split("[;:]", item["source"])[0],
        )
    out.print(table)
    out.print(f"default: {document['default']}; --json - has the whole sources")
    out.print(
        "also: a folder with config.json, a config.json, a typed YAML or JSON file, a hub name "
        "in the local cache"
    )


def print_clusters(out: Console, document: dict[str, Any]) -> None:
    """Print devices, nodes and fabrics, and how they combine into a cluster."""
    local = document["local"]
    memory = format_bytes(local["memory_bytes"])
    out.print(f"this machine: {local['cluster']} ({local['cores']} cores, {memory})")
    out.print("others: " + ", ".join(document["forms"]) + "; such as 16x8xH100-80GB@8x400G-IB")
    _print_devices(out, document["devices"])
    _print_nodes(out, document["nodes"])
    _print_fabrics(out, document["fabrics"])
    out.print("--json - has every figure with its source")


def _print_devices(out: Console, devices: list[dict[str, Any]]) -> None:
    out.print(Text("\ndevices", style="bold"))
    numbers = ("memory", "TB/s", "TFLOP/s bf16", "fp16", "fp32")
    table = columns("name", *numbers, "usual size", right=numbers)
    for item in devices:
        peaks = item["peak_flops_per_s"]
        rates = [f"{peaks[d] / 1e12:.4g}" if d in peaks else "-" for d in ("bf16", "fp16", "fp32")]
        memory = f"{item['capacity_bytes'] / GIB:.4g} GiB"
        speed = f"{item['memory_bandwidth_bytes_per_s'] / 1e12:.3g}"
        table.add_row(item["name"], memory, speed, *rates, "yes" if item["usual"] else "")
    out.print(table)


def _print_nodes(out: Console, nodes: list[dict[str, Any]]) -> None:
    out.print(Text("\nnodes", style="bold"))
    table = columns("name", "devices", "link", "network", "usual for", right=("devices",))
    for item in nodes:
        cells = (item["link"], item["network"], ", ".join(item["usual_for"]))
        table.add_row(item["name"], str(item["devices_per_node"]), *cells)
    out.print(table)


def _print_fabrics(out: Console, fabrics: list[dict[str, Any]]) -> None:
    out.print(Text("\nfabrics", style="bold"))
    numbers = ("GB/s", "adapters", "efficiency")
    table = columns("name", "between", "technology", *numbers, right=numbers)
    for item in fabrics:
        between = "devices of a node" if item["scope"] == "node" else "nodes"
        speed = f"{item['bandwidth_bytes_per_s'] / 1e9:.4g}"
        rest = (str(item["adapters"] or "-"), f"{item['efficiency']:.2f}")
        table.add_row(item["name"], between, item["technology"].replace("_", " "), speed, *rest)
    out.print(table)
