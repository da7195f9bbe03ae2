"""The ways in, with the census plugged in: a process of its own that prints what each shows."""

from __future__ import annotations

import contextlib
import io
import json
import sys

from toys.plugged_in import plug_in

QUESTION = {"global_batch": 2, "seq_len": 64, "dtype": "fp32"}
CLUSTER = "1x2xA100-80GB"
FLAGS = (
    "--model", "gpt2", "--cluster", CLUSTER, "--global-batch", "2", "--seq-len", "64",
    "--dtype", "fp32", "--calibration", "none",
)  # fmt: skip
OUT = ("--json", "-")
PINS = ("--pin", "pp=1", "--pin", "tp=1", "--pin", "recompute=none")


def ways_in() -> dict[str, object]:
    """Texts and documents of each way in, by its name; imports follow the plugging in."""
    name = plug_in().name

    import shardwright as sw
    from shardwright.api.cli.main import run
    from shardwright.api.server.compute.operations import run_operation
    from shardwright.api.server.openapi.describe import document_text
    from shardwright.spec.errors import InputError

    def typed(*words: str) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert run(words) == 0
        return out.getvalue()

    def refusal() -> str:
        try:
            sw.simulate("gpt2", CLUSTER, **QUESTION, **{name: "often"})
        except InputError as error:
            return str(error)
        return ""

    body = {
        "model": "gpt2",
        "cluster": CLUSTER,
        "workload": QUESTION,
        "strategy": {name: "each"},
        "calibration": "none",
    }
    status, answer = run_operation("simulation", json.dumps(body).encode(), 60.0)
    asked = {**QUESTION, name: "each", "calibration": "none"}
    handle = sw.simulate("gpt2", CLUSTER, **asked)
    return {
        "help": typed("simulate", "--help"),
        "simulated": json.loads(typed("simulate", *FLAGS, "--gradient-census", "each", *OUT)),
        "planned": json.loads(typed(*FLAGS, *PINS, "--pin", f"{name}@1-12=held", *OUT)),
        "python": handle.report.to_document(),
        "refusal": refusal(),
        "status": status,
        "service": json.loads(answer),
        "openapi": json.loads(document_text()),
    }


def main() -> None:
    """Print them."""
    sys.stdout.write(json.dumps(ways_in()))
