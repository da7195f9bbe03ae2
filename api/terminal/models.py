"""Models on a terminal: all that have a name, or one with its layers."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from ...spec.units import format_bytes, format_count
from .console import columns, heading


def print_models(out: Console, document: dict[str, Any]) -> None:
    """Print the presets, one per line."""
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
    out.print(f"default: {document['default']}; plan models NAME has layers, bytes and the source")
    out.print(
        "also: a folder with config.json, a config.json, a typed YAML or JSON file, a hub name "
        "in the local cache"
    )


def print_model(out: Console, document: dict[str, Any]) -> None:
    """Print one model with its layers, bytes and source."""
    out.print(Text(document["name"], style="bold"))
    out.print(_summary(document))
    _print_kinds(out, document)
    weights, states = (format_bytes(document[key]) for key in ("weights_bytes", "training_bytes"))
    out.print()
    out.print(f"weights: {weights} in bf16; {states} with fp32 gradients, master, moments")
    if targets := document["adapter_targets"]:
        out.print(f"adapters (--trainable lora:targets=…): {', '.join(targets)}")
    for item in document.get("left_out", ()):
        out.print(f"left out: {item}")
    for item in document.get("simplified", ()):
        out.print(f"simplified: {item}")
    if "source" in document:
        out.print(f"source: {document['source']}")
    elif document["assumptions"]:
        _print_assumptions(out, document["assumptions"])


def _summary(document: dict[str, Any]) -> str:
    count, active = document["parameters"], document["active_parameters"]
    parts = [f"{document['kind']}, {format_count(count)} parameters"]
    if active != count:
        parts.append(f"{format_count(active)} active")
    parts.append(f"{document['layers']} blocks, hidden {document['hidden']}")
    if document["heads"]:
        parts.append(f"{document['heads']} heads of {document['head_dim']}")
    if document["vocab"]:
        parts.append(f"vocabulary {document['vocab']}")
    return ", ".join(parts)


def _print_kinds(out: Console, document: dict[str, Any]) -> None:
    rows = document["layer_kinds"]
    several = len({row["tower"] for row in rows}) > 1
    numbers = ("layers", "each", "together")
    heading(out, "layers")
    table = columns(*(["tower"] if several else []), "what", *numbers, right=numbers)
    for row in rows:
        cells = [row["tower"]] if several else []
        each, together = row["parameters"], row["parameters"] * row["count"]
        table.add_row(
            *cells, row["layer"], str(row["count"]), format_count(each), format_count(together)
        )
    out.print(table)


def _print_assumptions(out: Console, assumptions: list[dict[str, Any]]) -> None:
    heading(out, "assumed")
    table = columns("key", "value", "why")
    for note in assumptions:
        table.add_row(note["path"].removeprefix("model."), str(note["value"]), note["why"])
    out.print(table)
