"""The presets on a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from ...spec.units import format_count
from .console import columns


def print_models(out: Console, document: dict[str, Any]) -> None:
    """Print the presets, one a line."""
    numbers = ("parameters", "active", "layers", "hidden", "ffn", "experts", "heads", "kv")
    table = columns("model", "kind", *numbers, right=numbers)
    for item in document["models"]:
        active = item["active_parameters"]
        table.add_row(
            item["name"],
            item["kind"],
            format_count(item["parameters"]),
            "" if active == item["parameters"] else format_count(active),
            *[str(item[key]) for key in ("layers", "hidden")],
            str(item["ffn"] or item["expert_ffn"]),
            f"{item['topk']}/{item['experts']}" if item["experts"] else "",
            *[str(item[key] or "") for key in ("heads", "kv_heads")],
        )
    out.print(table)
    out.print(f"default: {document['default']}; --json - has vocabularies and sources")
    out.print(
        "also: a folder with config.json, a config.json, a typed YAML or JSON file, a hub name "
        "in the local cache"
    )
