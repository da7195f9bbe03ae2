"""Stage 4: a 1B-class Llama step, ours and in plain code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

from gpu.model_case import ModelCase, Runner, efficiency, plan_of, problem_of, write_json
from gpu.stage import Claim, Measurement, Setting, Stage, Values, Verdict
from gpu.tiny_runs import tries
from harness.shapes import Table

FULL = ModelCase(
    layers=16,
    hidden=2048,
    ffn=8192,
    heads=32,
    kv_heads=8,
    vocab=128256,
    seq_len=8192,
    global_batch=4,
)
TINY = replace(FULL, layers=2, hidden=64, ffn=128, heads=4, kv_heads=2, vocab=512, seq_len=32)
LARGE_BYTES = 100 * 10**9
"""Device memory from which two samples run at once, on both sides; else one."""
STEPS = 12
LEAST_MFU = 0.5
OURS = "shardwright"
COMPILED = "shardwright, compiled blocks"
PLAIN = {
    "transformers, Liger, compiled, bf16 weights": {"compile": True, "autocast": False},
    "transformers, Liger, compiled, float32 weights": {"compile": True, "autocast": True},
    "transformers, Liger, float32 weights": {"compile": False, "autocast": True},
}
REDUCED_PLAIN = "transformers, neither Liger nor compiled, float32"
LEAST_S = 30.0


def rows(setting: Setting) -> list[Measurement]:
    """Ours, then the others, in fresh processes; then tiny trial runs."""
    case = TINY if setting.reduced else FULL
    least_s = 0.0 if setting.reduced else LEAST_S
    measurements = [
        Measurement(OURS, partial(_ours, case, setting), least_s),
        *_plain_rows(case, setting, least_s),
        Measurement(COMPILED, partial(_ours, case, setting, compiled="default"), least_s),
    ]
    return [
        *measurements,
        *(Measurement(key, run, least_s) for key, run in tries(TINY, setting).items()),
    ]


def _plain_rows(case: ModelCase, setting: Setting, least_s: float) -> list[Measurement]:
    if setting.reduced:
        job = {"compile": False, "autocast": False, "liger": False}
        return [Measurement(REDUCED_PLAIN, partial(_plain, case, job, setting))]
    return [
        Measurement(name, partial(_plain, case, {**job, "liger": True}, setting), least_s)
        for name, job in PLAIN.items()
    ]


def micro_batch(setting: Setting) -> int:
    """Samples at once, the same for all."""
    return 2 if setting.facts.get("memory_bytes", 0) >= LARGE_BYTES else 1


def _steps(setting: Setting) -> int:
    return 4 if setting.reduced else STEPS


def _ours(case: ModelCase, setting: Setting, compiled: str = "none") -> Values:
    problem = problem_of(case, setting)
    plan = plan_of(problem, micro_batch(setting), compiled=compiled)
    with Runner(setting) as runner:
        # On cores the fusing compiler takes minutes, and code that is traced alone runs as well.
        more = {"compiler": "aot_eager"} if setting.reduced else {}
        outcome = runner.run(plan, _steps(setting), **more)
    outcome["parameters"] = problem.model.param_count()
    return {**outcome, **efficiency(case, problem, outcome["step_time_s"]), **_about(case, setting)}


def _plain(case: ModelCase, job: dict[str, bool], setting: Setting) -> Values:
    """Run the job of :mod:`gpu.jobs.hf_llama`.

    Raises:
        ModuleNotFoundError: transformers or liger-kernel is not installed here.
        RuntimeError: the job failed.
    """
    for package, needed in (("transformers", True), ("liger_kernel", job["liger"])):
        if needed and find_spec(package) is None:
            raise ModuleNotFoundError(f"{package} is not installed here")
    question, answer = (setting.out / "jobs" / name for name in ("case.json", "result.json"))
    more = {"device": str(setting.device), "steps": _steps(setting)}
    write_json(question, {**asdict(case), **job, **more, "micro_batch": micro_batch(setting)})
    answer.unlink(missing_ok=True)
    command = [sys.executable, "-m", "gpu.jobs.hf_llama", str(question), str(answer)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=setting.left_s()
    )
    if done.returncode:
        last_line = done.stderr.strip().splitlines()[-1:] or ["nothing said"]
        raise RuntimeError(f"it exited with {done.returncode}: {last_line[0]}")
    outcome: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    figures = efficiency(case, problem_of(case, setting), outcome["step_time_s"])
    return {**outcome, **figures, **_about(case, setting)}


def _about(case: ModelCase, setting: Setting) -> dict[str, Any]:
    return {"case": asdict(case), "micro_batch": micro_batch(setting)}


def tables(values: Mapping[str, Values]) -> list[Table]:
    """A line a run, and what the tiny ones said."""
    made = [_steps_table({k: r for k, r in values.items() if "tokens_per_s" in r})]
    lines = [(key, row["said"]) for key, row in values.items() if "said" in row]
    if lines:
        made.append(Table(title="Tiny runs, tried once", columns=("what", "said"), rows=lines))
    return [table for table in made if table.rows]


def _steps_table(values: Mapping[str, Values]) -> Table:
    columns = ("run", "step", "tokens/s", "MFU", "MFU, causal", "peak", "parameters", "micro-batch")
    lines = [
        (
            key,
            f"{row['step_time_s'] * 1e3:.1f} ms",
            f"{row['tokens_per_s']:.0f}",
            *("" if row[n] is None else f"{row[n]:.1%}" for n in ("mfu", "mfu_causal")),
            "" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 2**30:.2f} GiB",
            str(row["parameters"]),
            str(row["micro_batch"]),
        )
        for key, row in values.items()
    ]
    if not lines:
        return Table(title="No step was measured", columns=columns, rows=[])
    case = next(iter(values.values()))["case"]
    title = f"A Llama of {case['layers']} layers and width {case['hidden']}, "
    title += (
        f"{case['global_batch']} samples of {case['seq_len']} tokens a step. MFU = model FLOPs "
    )
    title += "of a step / seconds / dense peak of the catalogue; causal: without masked scores"
    return Table(title=title, columns=columns, rows=lines)


def _judge_mfu(values: Mapping[str, Values]) -> Verdict | str:
    if OURS not in values:
        return "our run was not measured"
    mfu = values[OURS]["mfu"]
    if mfu is None:
        return "the catalogue has no bf16 peak of this device"
    figure = f"{mfu:.1%}, every score counted; {values[OURS]['mfu_causal']:.1%} without masked ones"
    return Verdict(figure, mfu >= LEAST_MFU, {"mfu": mfu})


def _judge_plain(values: Mapping[str, Values]) -> Verdict | str:
    others = {key: values[key]["step_time_s"] for key in PLAIN if key in values}
    compiled = [key for key in others if PLAIN[key]["compile"]]
    if OURS not in values or not compiled:
        return "not both sides were measured"
    fastest = min(others, key=lambda key: others[key])
    ratio = values[OURS]["step_time_s"] / others[fastest]
    figure = f"{ratio:.3f} of the step time of {fastest}"
    return Verdict(figure, ratio <= 1, {"ratio": ratio})


STAGE = Stage(
    name="end_to_end",
    order=4,
    budget_s=400,
    reduced_s=300,
    shows="A whole training step of a 1B-class Llama, ours and plain code, in fresh processes.",
    rows=rows,
    tables=tables,
    claims=(
        Claim(name="MFU of a 1B-class Llama", target=f"at least {LEAST_MFU:.0%}", judge=_judge_mfu),
        Claim(
            name="against plain code with Liger and torch.compile",
            target="no slower than the fastest of them",
            judge=_judge_plain,
        ),
    ),
)
