"""Stage 0: unpromised parts of torch and unused kernels, tried once."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from gpu.smoke_checks import CHECKS, Check
from gpu.smoke_kernels import KERNEL_CHECKS
from gpu.stage import Claim, Measurement, Setting, Stage, Values, Verdict, one_line
from harness.shapes import Table

OURS = "executor.torch_api"


def rows(setting: Setting) -> list[Measurement]:
    """A row a check, and names missing from our list of privates."""
    checks = {**CHECKS, **KERNEL_CHECKS}
    measurements = [
        Measurement(name, partial(_tried, check, setting)) for name, check in checks.items()
    ]
    if importlib.util.find_spec(f"shardwright.{OURS}"):
        measurements.insert(0, Measurement(OURS, _own_list))
    return measurements


def _tried(check: Check, setting: Setting) -> Values:
    try:
        message = check(setting.device)
    except Exception as error:
        return {"works": False, "said": one_line(error, 160)}
    return {"works": True, "said": message}


def _own_list() -> Values:
    module = importlib.import_module(f"shardwright.{OURS}")
    missing: Callable[[], list[str]] = module.missing
    lacking = missing()
    return {"works": not lacking, "said": "; ".join(lacking) or "nothing is missing"}


def tables(values: Mapping[str, Values]) -> list[Table]:
    """Outcome of every check."""
    parts = {
        "Private names of torch": {k: r for k, r in values.items() if k not in KERNEL_CHECKS},
        "Kernels against their definitions, gradients too": {
            key: row for key, row in values.items() if key in KERNEL_CHECKS
        },
    }
    return [
        Table(
            title=title, columns=("what", "", "said"), rows=[_line(k, r) for k, r in rows.items()]
        )
        for title, rows in parts.items()
        if rows
    ]


def _line(key: str, row: Values) -> tuple[str, str, str]:
    return key, "works" if row["works"] else "does not work", row["said"]


def _judge(planned: Sequence[str], values: Mapping[str, Values]) -> Verdict | str:
    rows = {key: values[key] for key in planned if key in values}
    broken = [key for key, row in rows.items() if not row["works"]]
    figure = f"{len(rows) - len(broken)} of {len(planned)} work"
    if len(rows) < len(planned) and not broken:
        return f"{figure}, the others were not tried"
    return Verdict(figure + (f"; not {', '.join(broken)}" if broken else ""), not broken, {})


STAGE = Stage(
    name="smoke",
    order=0,
    budget_s=100,
    reduced_s=120,
    shows="What torch keeps private and we lean on, and kernels that nothing else here runs.",
    rows=rows,
    tables=tables,
    claims=(
        Claim(
            name="private names of torch",
            target="all work",
            judge=partial(_judge, [*CHECKS, OURS]),
        ),
        Claim(
            name="kernels against their definitions",
            target="none further off than its type rounds",
            judge=partial(_judge, list(KERNEL_CHECKS)),
        ),
    ),
)
