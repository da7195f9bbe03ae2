"""Measurement of rows in a process that a broken kernel may end.

python -m gpu.child --out FOLDER --run ID --limit SECONDS [--reduced] STAGE…
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpu.orphan import end_with_parent
from gpu.stage import Setting, Stage, Values, one_line, stages
from gpu.state import Result, Rows

WHOLE = "the stage itself"
"""Key of the row that says why a stage could not say what it measures."""
SPOILED = 3
"""Exit status where the device took a fault that only a new process is rid of."""


def rows_of(out: Path, stage: str, identity: str) -> Rows:
    """The folder of a stage's rows."""
    return Rows(out / "rows", stage, identity)


def good(rows: Rows) -> dict[str, Values]:
    """The values of the rows that were measured."""
    return {key: row.values for key, row in rows.results().items() if row.status == "ok"}


def measure_stage(stage: Stage, setting: Setting, rows: Rows, run: str) -> None:
    """Measure what is not measured yet, until the budget is spent.

    Args:
        stage: what to measure.
        setting: device, folder, and when the budget ends.
        rows: where they are kept.
        run: of this command; a row that failed in it is not tried again.

    Raises:
        SystemExit: SPOILED, where no row after a failed one can be trusted.
    """
    try:
        planned = {measurement.key: measurement for measurement in stage.rows(setting)}
    except Exception as error:
        traceback.print_exc()
        rows.keep(Result(WHOLE, "failed", one_line(error), 0.0, {}, run))
        return
    rows.plan(list(planned))
    for key in rows.to_measure(list(planned), run):
        if setting.left_s() < planned[key].least_s:
            continue  # the report lists what was planned and has no row
        _say(f"{stage.name}: {key}")
        rows.begin(key)
        start_s = time.monotonic()
        try:
            values = dict(planned[key].run())
            result = Result(key, "ok", "", time.monotonic() - start_s, values, run)
        except Exception as error:
            traceback.print_exc()
            why = one_line(error)
            result = Result(key, "failed", why, time.monotonic() - start_s, {}, run)
        rows.keep(result)
        if result.status == "failed" and _is_spoiled(setting):
            raise SystemExit(SPOILED)


def _is_spoiled(setting: Setting) -> bool:
    """True if the device no longer answers; frees memory of a failed row."""
    if setting.device.type == "cpu":
        return False
    import torch

    try:
        torch.cuda.synchronize(setting.device)
        torch.cuda.empty_cache()
    except RuntimeError:
        return True
    return False


def _say(text: str) -> None:
    print(f"gpu-report: {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the stages that were asked for, one after another."""
    from gpu.machine_facts import facts, identity

    options = _options(arguments)
    end_with_parent()
    end_s = time.monotonic() + options.limit
    setting = make_setting(options.out, options.reduced)
    about = facts(setting.device)
    mark = identity(about, options.reduced)
    setting = replace(
        setting,
        facts=about,
        known=lambda name: good(rows_of(options.out, name, mark)),
    )
    for stage in stages():
        if stage.name not in options.stage:
            continue
        budget_s = min(stage.seconds(options.reduced), end_s - time.monotonic())
        if budget_s > 0:
            limited = replace(setting, end_s=time.monotonic() + budget_s)
            rows = rows_of(options.out, stage.name, mark)
            measure_stage(stage, limited, rows, options.run)
    return 0


def make_setting(out: Path, reduced: bool) -> Setting:
    """Device of the report: the first GPU, or a core if reduced."""
    import torch

    def nothing(name: str) -> dict[str, Any]:
        return {}

    device = torch.device("cpu") if reduced else torch.device("cuda", 0)
    if device.type == "cpu":
        torch.set_num_threads(1)
    return Setting(device=device, reduced=reduced, out=out, facts={}, known=nothing)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gpu.child")
    parser.add_argument("stage", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--limit", type=float, required=True)
    parser.add_argument("--reduced", action="store_true")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
