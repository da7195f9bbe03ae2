"""The presets on a terminal."""

from __future__ import annotations

import re
from typing import Any

from rich.console import Console

from ..spec.units import format_count
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
