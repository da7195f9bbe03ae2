"""Claims of the GPU report: judged by the worst row, if complete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gpu import kernel_table
from gpu.child import make_setting
from gpu.entry import FULL, TINY, collected
from gpu.report_file import judged_row
from gpu.stage import Claim, Verdict, stages
from gpu.stages import kernels, prediction

KEYS = [entry.key for entry in collected(FULL)]
UNJUDGED = [entry.key for entry in collected(FULL) if not entry.judged]
MEMORY = [entry.key for entry in collected(FULL) if entry.judged and entry.bound == "memory"]
LOSS = next(key for key in KEYS if key.startswith("linear_cross_entropy both"))


def claims_of(name: str) -> dict[str, Claim]:
    (stage,) = (stage for stage in stages() if stage.name == name)
    return {claim.name: claim for claim in stage.claims}


def kernel_row(ours_s: float, floor_s: float | None, **more: Any) -> dict[str, Any]:
    ours = {"time_s": ours_s, "spread": 0.01, "peak_bytes": 20}
    eager = {"time_s": 1.0, "spread": 0.01, "peak_bytes": 100}
    return {"floor_s": floor_s, "picked": ["triton"], "ours": ours, "eager": eager, **more}


def table(**changed: dict[str, Any] | None) -> dict[str, Any]:
    """Every row of the table, with changes; None: not measured."""
    rows: dict[str, Any] = {key: changed.get(key, kernel_row(1.0, 0.9)) for key in KEYS}
    return {key: row for key, row in rows.items() if row is not None}


def outcome(claim: Claim, found: dict[str, Any]) -> str:
    return judged_row(claim, found, reduced=False).outcome


def figure(claim: Claim, found: dict[str, Any]) -> str:
    return judged_row(claim, found, reduced=False).figure


def test_kernels_are_judged_by_their_worst() -> None:
    claims = claims_of("kernels")
    copy, eager = (claims[n] for n in ("memory-bound kernels against a copy", "kernels against eager"))  # fmt: skip  # noqa: E501
    slow = {MEMORY[1]: kernel_row(1.1, 0.9)}
    unjudged = {key: kernel_row(9.0, 0.9) for key in UNJUDGED}
    for claim in (copy, eager):
        assert outcome(claim, table()) == "PASS"
        assert outcome(claim, table(**unjudged)) == "PASS"
        assert outcome(claim, table(**slow)) == "MISS"
    assert outcome(copy, {key: kernel_row(1.0, None) for key in KEYS}) == "UNMEASURED"
    verdict = copy.judge(table(**slow))
    assert isinstance(verdict, Verdict)
    n = len(MEMORY)
    said = f"{n} of {n} measured, {n - 1} meet it; the worst 81.8% of the copy rate: {MEMORY[1]}"
    assert verdict.figure == said


@pytest.mark.parametrize("name", list(claims_of("kernels")))
def test_nothing_passes_while_a_judged_kernel_is_missing(name: str) -> None:
    claim = claims_of("kernels")[name]
    good = {LOSS: kernel_row(1.0, 1.0)}
    assert outcome(claim, table(**good)) == "PASS"
    assert outcome(claim, table(**good, **dict.fromkeys(UNJUDGED))) == "PASS"
    missing = table(**{LOSS: None}) if "loss" in name or "linear" in name else None
    found = missing or table(**good, **{MEMORY[0]: None})
    assert outcome(claim, found) == "UNMEASURED"
    assert " measured" in figure(claim, found)
    if missing is None:  # what is known to be slow is a miss, whatever else is missing
        slow = {MEMORY[0]: None, MEMORY[1]: kernel_row(1.1, 0.9)}
        assert outcome(claim, table(**slow)) == "MISS"
        total = len(MEMORY) if "copy" in name else len(KEYS) - len(UNJUDGED)
        assert f"{total - 1} of {total} measured, {total - 2} meet it" in figure(
            claim, table(**slow)
        )


def test_the_same_kernel_on_both_sides_differs_by_the_spread() -> None:
    claim = claims_of("kernels")["kernels against eager"]
    same = kernel_row(1.04, 0.9, picked=[])
    assert outcome(claim, table(**{MEMORY[0]: same})) == "MISS"
    for side in ("ours", "eager"):
        wide = {**same, side: {**same[side], "spread": 0.05}}
        assert outcome(claim, table(**{MEMORY[0]: wide})) == "PASS"
        assert outcome(claim, table(**{MEMORY[0]: {**wide, "picked": ["triton"]}})) == "MISS"


def test_the_fused_loss_is_judged_by_time_and_by_peak() -> None:
    claims = claims_of("kernels")
    time, peak = (claims[f"fused linear cross-entropy, {name}"] for name in ("time", "memory"))
    assert outcome(time, {LOSS: kernel_row(1.14, 1.0)}) == "PASS"
    assert outcome(time, {LOSS: kernel_row(1.16, 1.0)}) == "MISS"
    assert outcome(peak, {LOSS: kernel_row(1.0, 1.0)}) == "PASS"
    more = {"ours": {"time_s": 1.0, "peak_bytes": 26}}
    assert outcome(peak, {LOSS: kernel_row(1.0, 1.0, **more)}) == "MISS"
    assert outcome(time, {MEMORY[0]: kernel_row(1.0, 1.0)}) == "UNMEASURED"


def test_judged_kernels_come_first_and_each_family_is_compiled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str, bool, bool]] = []

    def noted(entry: Any, sizes: Any, setting: Any, compiles: bool) -> dict[str, Any]:
        asked.append((entry.family, entry.case, compiles, entry.judged))
        return {}

    monkeypatch.setattr(kernels, "measure", noted)
    monkeypatch.setattr(kernels, "TINY", FULL)
    planned = kernels.rows(make_setting(tmp_path, reduced=True))
    for row in planned:
        row.run()
    assert sorted(row.key for row in planned) == sorted(KEYS)
    judged = [row[3] for row in asked]
    assert judged == sorted(judged, reverse=True)
    compiled = {(family, case) for family, case, compiles, _ in asked if compiles}
    assert len(compiled) == len({family for family, _ in compiled}) == len({a[0] for a in asked})
    assert {case for family, case in compiled if family == "rms_norm"} == {"8192 x 4096"}


def test_what_is_not_compiled_says_so(tmp_path: Path) -> None:
    entry = next(e for e in collected(TINY) if e.family == "gelu")
    found = kernel_table.measure(entry, TINY, make_setting(tmp_path, True), compiles=False)
    assert found["compiled"] == {"why": "compiled at the family's first size only"}
    assert found["picked"] == []  # the library's kernel on both sides


def test_a_step_is_judged_by_mfu_and_beside_plain_code() -> None:
    claims = claims_of("end_to_end")
    mfu = claims["MFU of a 1B-class Llama"]
    plain = claims["against plain code with Liger and torch.compile"]
    ours = {"shardwright": {"step_time_s": 1.0, "mfu": 0.51, "mfu_causal": 0.4}}
    compiled = "transformers, Liger, compiled, bf16 weights"
    eager = "transformers, Liger, float32 weights"
    assert outcome(mfu, ours) == "PASS"
    assert outcome(mfu, {"shardwright": {**ours["shardwright"], "mfu": 0.49}}) == "MISS"
    assert outcome(mfu, {compiled: {"step_time_s": 1.0}}) == "UNMEASURED"
    assert outcome(plain, {**ours, compiled: {"step_time_s": 1.1}}) == "PASS"
    assert outcome(plain, {**ours, compiled: {"step_time_s": 0.9}}) == "MISS"
    both = {**ours, compiled: {"step_time_s": 1.1}, eager: {"step_time_s": 0.9}}
    assert outcome(plain, both) == "MISS"
    assert outcome(plain, {**ours, eager: {"step_time_s": 1.1}}) == "UNMEASURED"


def test_predictions_are_judged_by_their_worst_and_the_pick_by_the_fastest() -> None:
    step, peak, pick = claims_of("prediction").values()
    chosen = prediction.configurations(False)
    keys = [*(configuration.key for configuration in chosen), prediction.PICK]
    rows = {key: {"step_error": 0.01 * (n % 9 - 4), "peak_error": -0.02, "step_time_s": 1.0 + n}
            for n, key in enumerate(keys)}  # fmt: skip
    assert outcome(step, rows) == "PASS"
    assert outcome(peak, rows) == "PASS"
    wrong = {**rows, keys[0]: {**rows[keys[0]], "step_error": -0.06}}
    assert outcome(step, wrong) == "MISS"
    without = dict(list(rows.items())[:-2])
    assert outcome(step, without) == "UNMEASURED"
    assert figure(step, without).startswith("11 of 13 measured, 11 meet it; the worst 4.0% off")
    assert outcome(step, dict(list(wrong.items())[:-2])) == "MISS"
    competing = [configuration.key for configuration in chosen if configuration.competes]
    plans = {prediction.PREDICTED: {"competing": competing}}
    for seconds, expected in ((0.9, "PASS"), (1.019, "PASS"), (1.021, "MISS")):
        picked = {prediction.PICK: {**rows[keys[0]], "step_time_s": seconds}}
        assert outcome(pick, {**rows, **plans, **picked}) == expected
    del rows[prediction.PICK]
    assert outcome(pick, {**rows, **plans}) == "UNMEASURED"
