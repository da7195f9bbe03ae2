"""The ways in, with toys plugged in: a process of its own that prints what each shows."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toys.plugged_in import plug_in

QUESTION = {"global_batch": 2, "seq_len": 64, "dtype": "fp32"}
CLUSTER = "1x2xA100-80GB"
FLAGS = (
    "--model", "gpt2", "--cluster", CLUSTER, "--global-batch", "2", "--seq-len", "64",
    "--dtype", "fp32", "--calibration", "none",
)  # fmt: skip
FREE = "shardwright-demo"
FREE_FLAGS = (FLAGS[0], FREE, *FLAGS[2:])
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
        "program": program_ways_in(typed),
        "refused": {text: refused(*words) for text, words in REFUSED.items()},
    }


PROGRAM = "averaged_weights"
REFUSED = {
    "unknown word": ("simulate", "--averaged-weights", "3"),
    "outside the family": ("simulate", "--averaged-weights", "pull:0.1"),
    "on layers": ("--pin", f"{PROGRAM}@1-2=2"),
    "two pins": ("--pin", f"{PROGRAM}=2", "--pin", f"{PROGRAM}=4"),
    "a layer's on a program": ("--program-plan", "gradient_census"),
    "a program's on layers": ("--layer-plan", PROGRAM),
    "one state": (
        *("simulate", "--cpu-offload", "all", "--host-gib", "8", "--shard", "zero3"),
        *("--averaged-weights", "2"),
    ),
}


def program_ways_in(typed: Callable[..., str]) -> dict[str, object]:
    """What each way in shows of a value of the whole program."""
    import shardwright as sw
    from shardwright.api.server.compute.operations import run_operation

    flags = (*FREE_FLAGS, "--averaged-weights", "pull:0.5")
    body = {
        "model": FREE,
        "cluster": CLUSTER,
        "workload": QUESTION,
        "strategy": {PROGRAM: "pull:0.5"},
        "calibration": "none",
    }
    _, answer = run_operation("simulation", json.dumps(body).encode(), 60.0)
    asked = {**QUESTION, PROGRAM: "pull:0.5", "calibration": "none"}
    few = (*PINS, "--pin", "shard=zero2")
    pins = (*few, "--pin", f"{PROGRAM}=4")
    return {
        "simulated": json.loads(typed("simulate", *flags, *OUT)),
        "python": sw.simulate(FREE, CLUSTER, **asked).report.to_document(),
        "service": json.loads(answer),
        "planned": json.loads(typed(*FREE_FLAGS, *pins, *OUT)),
        "allowed": json.loads(typed(*FREE_FLAGS, *few, "--allow", PROGRAM, *OUT)),
    }


def refused(*words: str) -> tuple[int, str]:
    """Exit status and error of a command."""
    from shardwright.api.cli.main import run

    with contextlib.redirect_stderr(io.StringIO()) as err, tempfile.TemporaryDirectory() as folder:
        if words[0].endswith("-plan"):
            path = Path(folder) / "plan.json"
            path.write_text(json.dumps(misplaced(*words)), encoding="utf-8")
            return run(("simulate", str(path))), err.getvalue().replace(folder, "")
        verb = words[:1] if words[0] == "simulate" else ()
        return run((*verb, *FREE_FLAGS, *words[len(verb) :])), err.getvalue()


def misplaced(place: str, name: str) -> dict[str, Any]:
    """A plan whose program, or layers, hold a value of the other scope."""
    import shardwright as sw

    document = sw.simulate(FREE, CLUSTER, **QUESTION).report.to_document()["plan"]
    (program,) = document["programs"]
    if place == "--program-plan":
        program["techniques"] = {name: {}}
    else:
        for part in program["stages"][0]["virtual_stages"][0]:
            part.setdefault("strategy", {})["techniques"] = {name: {}}
    return dict(document)


def main() -> None:
    """Print them."""
    sys.stdout.write(json.dumps(ways_in()))
