"""Other frameworks' files: public ones are read, exports are read again, ``--for`` stays inside.

Public configurations (tests/api/frameworks/samples) are read or refused by key. Random legal plans
inside each framework's limits are written, and what was written is read again; plans outside name
what was lost. Small spaces of what a framework can say are enumerated against the planner.
"""

from __future__ import annotations

import os
import tomllib
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # small arrays: threads only take each other's time

from checks.exportable_plans import random_plans
from harness.paths import ROOT
from harness.shapes import PLANNING, Evidence, Item, judged
from harness.work import Work
from oracles.framework_spaces import check_space

from shardwright.api.frameworks.export_plan import export_plan
from shardwright.api.frameworks.import_plan import import_plan
from shardwright.api.frameworks.shipped import WRITTEN, framework_named
from shardwright.api.problem.resolve import Inputs
from shardwright.spec.errors import InputError

SAMPLES = ROOT / "tests" / "api" / "frameworks" / "samples"
DRAWN, FULL, SPACES = 10, 40, 15
LEAST = 0.95


def run(work: Work) -> Evidence:
    """Read samples, write and read plans, and with ``--full`` enumerate spaces."""
    count = work.sized(DRAWN, 2, FULL)
    spaces = work.sized(0, 0, SPACES)
    first = work.first_seed(10_000)
    names = [f"plans {name} {first} {count}" for name in WRITTEN]
    names += [f"space {name} {first + n} 0" for name in WRITTEN for n in range(spaces)]
    pieces = work.pieces(names, piece)
    read = sum(_is_read(sample) for sample in _samples())
    written = sum(p["inside"] for p in pieces)
    same = sum(p["same"] for p in pieces)
    outside, named = (sum(p[key] for p in pieces) for key in ("outside", "named"))
    rows = [
        judged(
            "public configurations read as recorded; the others are refused by key",
            f"{read} of {len(_samples())}",
            f"at least {LEAST:.0%}",
            read >= LEAST * len(_samples()),
        ),
        judged("plans inside, read as they were written", f"{same} of {written}", "all",
               same == written),
        judged("plans outside whose losses and cost are named, or that are refused",
               f"{named} of {outside}", "all", named == outside),
    ]  # fmt: skip
    if spaces:
        plans = sum(p["plans"] for p in pieces)
        figure = f"{spaces * len(WRITTEN)} spaces, {plans} plans"
        rows.append(judged("spaces whose best plan was found and proven", figure, "all", True))
    return Evidence(rows=rows)


def piece(name: str) -> dict[str, Any]:
    """Plans of a framework written and read, or one of its spaces enumerated."""
    kind, title, seed, count = name.split()
    found = {"inside": 0, "same": 0, "outside": 0, "named": 0, "plans": 0}
    if kind == "space":
        return {**found, "plans": check_space(title, int(seed))}
    framework = framework_named(title, "--to")
    for plan, priced in random_plans(framework, int(count), int(seed)):
        made = export_plan(plan, priced, None, framework)
        found["inside"] += 1
        found["same"] += made.plan == plan and not made.lost
    for plan, priced in random_plans(framework, max(1, int(count) // 4), int(seed), inside=False):
        found["outside"] += 1
        try:
            made = export_plan(plan, priced, None, framework)
        except InputError:  # no plan near it is legal there: refused, with the reason
            found["named"] += 1
            continue
        found["named"] += bool(made.lost) and made.cost_s == made.step_s - made.given_step_s
    return found


def _samples() -> list[dict[str, Any]]:
    return list(tomllib.loads((SAMPLES / "index.toml").read_text(encoding="utf-8"))["sample"])


def _is_read(sample: dict[str, Any]) -> bool:
    """True if a sample is the plan that was recorded of it."""
    known = ("model", "global_batch", "seq_len")
    given = {name: sample[name] for name in known if name in sample}
    cluster = f"{sample['devices']}xH100-80GB"
    path = str(SAMPLES / sample["file"])
    try:
        found = import_plan(path, None, Inputs(cluster=cluster, **given), {})
    except InputError:
        return False
    return found.plan.hash.startswith(sample.get("plan", "none"))


ITEM = Item(
    name="frameworks",
    shows="Files of other frameworks are read, written and kept to.",
    target=f"at least {LEAST:.0%} of public files read, every plan inside read as written.",
    run=run,
    reads=(*PLANNING, "api/frameworks", "tests/api/frameworks/samples"),
)
