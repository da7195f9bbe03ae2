"""Stage 0: what torch does not promise and we lean on, tried on the device itself."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from functools import partial

from gpu.smoke_checks import CHECKS, Check
from gpu.stage import Claim, Measurement, Setting, Stage, Values, Verdict, one_line
from harness.shapes import Table

OURS = "executor.torch_api"


def rows(setting: Setting) -> list[Measurement]:
    """A row a check; and what our own list of private names misses, where there is one."""
    found = [Measurement(name, partial(_tried, check, setting)) for name, check in CHECKS.items()]
    if importlib.util.find_spec(f"shardwright.{OURS}"):
        found.append(Measurement(OURS, _own_list))
    return found


def _tried(check: Check, setting: Setting) -> Values:
    """Whether a check passes; one that does not is a finding, not a failure of the stage."""
    try:
        said = check(setting.device)
    except Exception as error:
        return {"works": False, "said": one_line(error, 160)}
    return {"works": True, "said": said}


def _own_list() -> Values:
    module = importlib.import_module(f"shardwright.{OURS}")
    missing: Callable[[], list[str]] = module.missing
    lacking = missing()
    return {"works": not lacking, "said": "; ".join(lacking) or "nothing is missing"}


def tables(found: Mapping[str, Values]) -> list[Table]:
    """What works."""
    lines = [
        (key, "works" if row["works"] else "does not work", row["said"])
        for key, row in found.items()
    ]
    return [Table(title="Private names of torch", columns=("what", "", "said"), rows=lines)]


def _judge(found: Mapping[str, Values]) -> Verdict:
    broken = [key for key, row in found.items() if not row["works"]]
    figure = f"{len(found) - len(broken)} of {len(found)} work"
    return Verdict(figure + (f"; not {', '.join(broken)}" if broken else ""), not broken, {})


STAGE = Stage(
    name="smoke",
    order=0,
    budget_s=60,
    reduced_s=120,
    shows="What torch keeps private and we lean on, on this device.",
    rows=rows,
    tables=tables,
    claims=(Claim(name="private names of torch", target="all work", judge=_judge),),
)
