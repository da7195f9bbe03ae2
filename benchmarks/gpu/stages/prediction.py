"""Stage 5: steps predicted from the profile and measured; the planner's pick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gpu.model_case import (
    ModelCase,
    Runner,
    measured_profile,
    plan_of,
    predicted,
    problem_of,
    top_pick,
)
from gpu.stage import Claim, Measurement, Setting, Stage, Values, Verdict
from gpu.verdicts import verdict_of_all
from harness.shapes import Table

from shardwright.spec.plan.plan import Plan

MAIN = ModelCase(
    layers=8,
    hidden=2048,
    ffn=8192,
    heads=32,
    kv_heads=8,
    vocab=32768,
    seq_len=4096,
    global_batch=8,
)
TINY = ModelCase(
    layers=2, hidden=64, ffn=128, heads=4, kv_heads=2, vocab=512, seq_len=32, global_batch=4
)
STEP_LIMIT, PEAK_LIMIT, PICK_LIMIT = 0.05, 0.03, 0.02
LEAST_MEASURED = 8
STEPS = 10
PREDICTED = "predicted before any was run"
PICK = "the planner's pick"
LEAST_S = 12.0
TITLE = (
    "Predicted from the profile. Peaks are of torch's allocator: on a CUDA device what lives at "
    "once and the workspaces of cuBLAS, on cores tensors alone"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A case with its micro-batch and recomputation.

    The planner's pick is held against those that ``compete``: they do the same work.
    """

    case: ModelCase
    micro_batch: int
    recompute: str
    competes: bool = False

    @property
    def key(self) -> str:
        """Name of the row."""
        case = self.case
        parts = case.global_batch // self.micro_batch
        return (
            f"{case.layers} layers, sequence {case.seq_len}, {parts} x {self.micro_batch}, "
            f"recompute {self.recompute}"
        )


COMPETING = (
    (1, "none"),
    (1, "full"),
    (2, "none"),
    (2, "selective"),
    (4, "none"),
    (4, "full"),
    (8, "none"),
    (8, "selective"),
)
"""Micro-batch and recomputation of the eight that do the same work."""
OTHERS = (
    Configuration(case=replace(MAIN, layers=4), micro_batch=2, recompute="none"),
    Configuration(
        case=replace(MAIN, seq_len=8192, global_batch=4), micro_batch=1, recompute="none"
    ),
    Configuration(
        case=replace(MAIN, seq_len=1024, global_batch=32), micro_batch=4, recompute="full"
    ),
    Configuration(
        case=replace(MAIN, layers=12, seq_len=2048), micro_batch=4, recompute="selective"
    ),
)


def configurations(reduced: bool) -> list[Configuration]:
    """All measured configurations, with the planner's pick."""
    if reduced:
        return [
            Configuration(case=TINY, micro_batch=size, recompute=kind, competes=True)
            for size, kind in ((2, "none"), (4, "full"))
        ]
    main = [
        Configuration(case=MAIN, micro_batch=size, recompute=kind, competes=True)
        for size, kind in COMPETING
    ]
    return [*main, *OTHERS]


def rows(setting: Setting) -> list[Measurement]:
    """The predictions, then a row a configuration, all on the same ranks."""
    chosen = configurations(setting.reduced)
    runner = Runner(setting)
    least_s = 0.0 if setting.reduced else LEAST_S
    first = Measurement(PREDICTED, partial(_predict, chosen, setting))
    pick = Measurement(PICK, partial(_run_pick, runner, setting), least_s)
    return [
        first,
        *(Measurement(c.key, partial(_run, c, runner, setting), least_s) for c in chosen),
        pick,
    ]


def _predict(chosen: Sequence[Configuration], setting: Setting) -> Values:
    """Predictions of every plan, and the planner's pick of the main problem."""
    profile = measured_profile(setting)
    predictions: dict[str, Any] = {}
    for configuration in chosen:
        problem = problem_of(configuration.case, setting, profile)
        plan = plan_of(problem, configuration.micro_batch, configuration.recompute)
        predictions[configuration.key] = {"plan_hash": plan.hash, **predicted(plan, problem)}
    problem = problem_of(chosen[0].case, setting, profile)
    plan = top_pick(problem)
    return {
        "by_configuration": predictions,
        "pick": {"plan": plan.to_document(), "plan_hash": plan.hash, **predicted(plan, problem)},
        "competing": [c.key for c in chosen if c.competes],
    }


def _known(setting: Setting) -> Values:
    """The prediction of a row.

    Raises:
        LookupError: nothing was.
    """
    predictions = setting.known("prediction")
    if PREDICTED not in predictions:
        raise LookupError("nothing was predicted")
    return predictions[PREDICTED]


def _run(configuration: Configuration, runner: Runner, setting: Setting) -> Values:
    before = _known(setting)["by_configuration"][configuration.key]
    problem = problem_of(configuration.case, setting)
    plan = plan_of(problem, configuration.micro_batch, configuration.recompute)
    return _compared(before, plan, runner, setting)


def _run_pick(runner: Runner, setting: Setting) -> Values:
    """The planner's pick; measured already where it is one of the others."""
    from shardwright.spec.codec import from_document
    from shardwright.spec.techniques import TECHNIQUES

    pick = _known(setting)["pick"]
    try:
        for row in setting.known("prediction").values():
            if row.get("plan_hash") == pick["plan_hash"]:
                return dict(row)
        plan = from_document(Plan, pick["plan"], "the planner's pick", {"techniques": TECHNIQUES})
        return _compared(pick, plan, runner, setting)
    finally:
        runner.close()


def _compared(before: Values, plan: Plan, runner: Runner, setting: Setting) -> Values:
    outcome = runner.run(plan, 3 if setting.reduced else STEPS)
    step_s, peak_bytes = before["step_time_s"], before["peak_bytes"]
    return {
        **outcome,
        "plan_hash": plan.hash,
        "predicted_s": step_s,
        "predicted_bytes": peak_bytes,
        "step_error": step_s / outcome["step_time_s"] - 1,
        "peak_error": peak_bytes / outcome["peak_bytes"] - 1,
    }


def _measured(values: Mapping[str, Values]) -> dict[str, Values]:
    return {key: row for key, row in values.items() if "step_error" in row}


def tables(values: Mapping[str, Values]) -> list[Table]:
    """Predicted beside measured."""
    columns = ("configuration", "measured", "predicted", "error", "peak", "predicted", "error")
    lines = [
        (
            key,
            f"{row['step_time_s'] * 1e3:.1f} ms",
            f"{row['predicted_s'] * 1e3:.1f} ms",
            f"{row['step_error']:+.1%}",
            f"{row['peak_bytes'] / 2**30:.2f} GiB",
            f"{row['predicted_bytes'] / 2**30:.2f} GiB",
            f"{row['peak_error']:+.1%}",
        )
        for key, row in _measured(values).items()
    ]
    return [Table(title=TITLE, columns=columns, rows=lines)]


def _judge_errors(name: str, limit: float, values: Mapping[str, Values]) -> Verdict | str:
    errors = {key: abs(row[name]) for key, row in _measured(values).items()}
    planned = [*(configuration.key for configuration in configurations(False)), PICK]
    return verdict_of_all(errors, dict.fromkeys(errors, limit), planned, "{:.1%} off")


def _judge_pick(values: Mapping[str, Values]) -> Verdict | str:
    rows, competing = _measured(values), values.get(PREDICTED, {}).get("competing", [])
    times = {key: rows[key]["step_time_s"] for key in competing if key in rows}
    if len(times) < LEAST_MEASURED or PICK not in rows:
        return f"{len(times)} of the competing configurations were measured"
    fastest = min(times, key=lambda key: times[key])
    regret = max(0.0, rows[PICK]["step_time_s"] / times[fastest] - 1)
    figure = f"{regret:.1%} slower than the fastest of {len(times)}: {fastest}"
    return Verdict(figure, regret <= PICK_LIMIT, {"regret": regret})


STAGE = Stage(
    name="prediction",
    order=5,
    budget_s=300,
    reduced_s=300,
    shows="Step time and peak memory predicted from the profile, then measured.",
    rows=rows,
    tables=tables,
    claims=(
        Claim(
            name="predicted step time",
            target=f"within {STEP_LIMIT:.0%} for each configuration",
            judge=partial(_judge_errors, "step_error", STEP_LIMIT),
        ),
        Claim(
            name="predicted peak memory",
            target=f"within {PEAK_LIMIT:.0%} for each configuration",
            judge=partial(_judge_errors, "peak_error", PEAK_LIMIT),
        ),
        Claim(
            name=PICK,
            target=f"the fastest of {LEAST_MEASURED} measured, or within {PICK_LIMIT:.0%} of it",
            judge=_judge_pick,
        ),
    ),
)
