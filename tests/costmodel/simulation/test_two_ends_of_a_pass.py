"""A message leaves with the work of the layers; reductions follow, where the stack has them."""

from __future__ import annotations

import pytest

import shardwright as sw

BLOCK = {"layers": 8, "hidden": 8192, "heads": 64, "ffn": 32768, "vocab": 32000}
WIDE = {**BLOCK, "norm": "layernorm", "activation": "gelu"}
MEGASCALE: dict[str, object] = {"layers": 96, "hidden": 12288, "heads": 128, "vocab": 64000}
MEGATRON_S = {
    (256, 768): 40.0,
    (512, 768): 21.2,
    (768, 768): 15.2,
    (1024, 768): 11.9,
    (3072, 6144): 29.02,
    (6144, 6144): 14.78,
    (8192, 6144): 12.24,
    (12288, 6144): 8.57,
}
"""Step times of Megatron-LM by GPUs and batch: MegaScale, NSDI 2024, table 2."""
MEGASCALE_S = dict(zip(MEGATRON_S, (32.0, 16.5, 11.5, 8.9, 23.66, 12.21, 9.56, 6.34), strict=True))
"""Those of MegaScale, in the same table."""


def _step_s(pp: int, **flags: object) -> float:
    arguments = {"tp": 8, "pp": pp, "micro_batch": 1, "global_batch": 32, "seq_len": 2048}
    simulated = sw.simulate(WIDE, f"{2 * pp}x8xA100-80GB", **{**arguments, **flags})
    return float(simulated.report.prediction.step_time_s)


@pytest.mark.parametrize(("pp", "expected_s"), [(1, 1.202), (2, 0.674), (4, 0.412), (8, 0.289)])
def test_no_stage_waits_for_the_reductions_of_another(pp: int, expected_s: float) -> None:
    assert _step_s(pp, stack="megatron") == pytest.approx(expected_s, rel=0.005)


@pytest.mark.parametrize(
    ("stack", "overlap"),
    [("megatron", "none"), ("megatron", "dp"), ("deepspeed", "dp")],
)
def test_the_bubble_of_two_stages_holds_no_reductions(stack: str, overlap: str) -> None:
    """One micro-batch of sixteen, and no more where reductions are hidden or come last."""
    simulated = sw.simulate(
        WIDE,
        "4x8xA100-80GB",
        tp=8,
        pp=2,
        micro_batch=1,
        global_batch=32,
        seq_len=2048,
        stack=stack,
        overlap=overlap,
        shard="zero0",
    )
    seconds = simulated.report.prediction.breakdown_s
    work_s = sum(seconds.values()) - seconds["bubble"] - seconds["exposed_dp"]
    assert seconds["bubble"] < 1.4 * work_s / 16


def _errors(
    model: dict[str, object], measured: dict[tuple[int, int], float], **flags: object
) -> dict[tuple[int, int], float]:
    """Relative errors of step times on 175 billion parameters, tp 8, pp 8."""
    errors = {}
    for (gpus, batch), measured_s in measured.items():
        simulated = sw.simulate(
            model,
            f"{gpus // 8}x8xA100-80GB",
            tp=8,
            sp="megatron",
            pp=8,
            vpp=6,
            micro_batch=1,
            global_batch=batch,
            seq_len=2048,
            stack="megatron",
            **flags,
        )
        errors[gpus, batch] = simulated.report.prediction.step_time_s / measured_s - 1
    return errors


def test_megascale_times_of_megatron() -> None:
    """Within 18 %, and at most 14 points between the smallest and the largest cluster."""
    errors = _errors(MEGASCALE, MEGATRON_S)
    assert max(map(abs, errors.values())) < 0.18
    assert abs(errors[256, 768] - errors[12288, 6144]) < 0.14


def test_megascale_times_of_its_overlaps() -> None:
    """Parallel blocks, and sharding's and tensor parallelism's traffic beside computation."""
    parallel = {**MEGASCALE, "parallel": True, "shared_norm": True}
    errors = _errors(parallel, MEGASCALE_S, overlap="dp+tp")
    assert max(map(abs, errors.values())) < 0.18
