"""A preparation in a process of its own, which alone loads libraries of the extra ``data``.

A request comes in as one JSON document; events and the end go out, one JSON document a line.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from ...spec.errors import InputError, RunError
from ..recipes.data_stage import Stages
from ..recipes.recipe import recipe_of
from .dry_run import estimate
from .prepare import SHIPPED_AT, PrepareSettings, prepare
from .worker import stages_at
from .workers import refusal


def answer(request: Mapping[str, Any], stages: Stages, events: TextIO) -> None:
    """Do what a request asks, and tell of it."""

    def on_event(event: dict[str, Any]) -> None:
        events.write(json.dumps(event) + "\n")
        events.flush()

    recipe = recipe_of(request["recipe"], request["where"], stages)
    settings = PrepareSettings(jobs=request["jobs"], share=request["share"])
    folder = Path(request["folder"])
    try:
        if request["out"] is not None:
            prepare(recipe, folder, Path(request["out"]), stages, settings, on_event)
            on_event({"event": "done"})
            return
        with tempfile.TemporaryDirectory(prefix="shardwright-data-") as scratch:
            found = estimate(recipe, folder, Path(scratch), stages, settings, on_event)
            on_event({"event": "done", "estimate": found})
    except InputError as error:
        on_event({"event": "refused", "refused": refusal(error)})
    except RunError as error:
        on_event({"event": "failed", "why": str(error)})


if __name__ == "__main__":
    answer(json.load(sys.stdin), stages_at(SHIPPED_AT), sys.stdout)
