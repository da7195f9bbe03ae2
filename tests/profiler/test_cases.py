"""What is timed is what runs record: names, types and bytes; nothing is held that is not due."""

from __future__ import annotations

import gc

import pytest
import torch
from checks.lowering_check import executor_stack
from checks.nested_runs import Nested
from kernel_doubles import interpreter

from shardwright.costmodel.lowering.step_work import step_work
from shardwright.costmodel.techniques import TECHNIQUES
from shardwright.executor.tracing.recorder import Recorder
from shardwright.kernels import fused as fused_kernels
from shardwright.profiler.cases import fused_cases
from shardwright.profiler.cases.all_cases import (
    CUDA_COARSE,
    CUDA_FINE,
    Sizes,
    all_cases,
    sizes_for,
)
from shardwright.profiler.cases.case import TensorSpec, random_tensor
from shardwright.profiler.cases.streamed_cases import RowOperands
from shardwright.profiler.timing import kernel_timing
from shardwright.spec.report.work_items import FLASH_BACKWARDS, FLASH_FORWARDS, Kernel

assert interpreter, "before triton"
TINY = Sizes(sides=(8, 16), elements=(1024, 2048), heads=(2, 4), sequences=(16, 32), head_dims=(8,))
CORE, GPU = torch.device("cpu"), torch.device("cuda", 0)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_case_is_what_a_run_records(dtype: str) -> None:
    for case in all_cases(TINY, (dtype,)):
        run = case.prepare()
        with Recorder() as recorder:
            run()
        if case.kernel.op.startswith("block_"):  # fused on other devices, a chain on a core
            assert len(recorder.kernels) > 1, case.kernel
            continue
        (seen,) = recorder.kernels
        assert (seen.op, seen.dtype, seen.flops) == (
            case.kernel.op,
            case.kernel.dtype,
            case.kernel.flops,
        )
        assert seen.traffic_bytes == pytest.approx(case.kernel.traffic_bytes, rel=0.01)
        if seen.op != "embedding_backward":  # of which the table is the largest operand
            assert seen.shape == case.kernel.shape


@pytest.mark.parametrize(
    ("text", "word"), [("zero2", "sdp4bit@4"), ("hpz:4", "zero++/hpz8@4"), ("hpz:4", "hpz8")]
)
def test_what_ranks_quantize_is_timed_under_its_price_s_name(text: str, word: str) -> None:
    work = step_work(Nested(text, word).plan(), executor_stack(flash=True), 0, TECHNIQUES)
    priced = {
        (item.op, item.dtype)
        for item in work
        if isinstance(item, Kernel) and item.op.startswith("block_")
    }
    assert priced
    timed = {(case.kernel.op, case.kernel.dtype) for case in all_cases(TINY, ("fp32",))}
    assert priced <= timed


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device of compute capability 9.0 that Triton's kernels would run on."""
    monkeypatch.setattr(fused_kernels, "capability", lambda index: (9, 0))


@pytest.mark.usefixtures("gpu")
def test_a_gpu_s_cases_are_large_and_fused() -> None:
    cases = [case.kernel for case in all_cases(CUDA_FINE, ("bf16", "fp32"), GPU)]
    ops = {kernel.op for kernel in cases}
    assert {item.streamed.op for item in fused_cases.FUSED_OPS} <= ops
    assert {FLASH_FORWARDS[0], FLASH_BACKWARDS[0], "fused_adamw", "copy", "cast"} <= ops
    assert max(kernel.shape for kernel in cases if kernel.op == "matmul") == (16384,) * 3
    assert max(kernel.shape[0] for kernel in cases if kernel.op == "add") == 2**28
    flash = {kernel.dtype for kernel in cases if kernel.op.startswith("flash")}
    assert flash == {"bf16"}, "a GPU's flash kernels take no fp32"
    assert len(cases) == len(set(cases))
    assert sizes_for(GPU, coarse=True) is CUDA_COARSE


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("sizes", [CUDA_COARSE, CUDA_FINE])
def test_the_loss_of_many_logits_is_as_wide_as_a_vocabulary(sizes: Sizes) -> None:
    """Logits read and written, and 16 bytes a row: its target, its loss read and written."""
    cases = [case.kernel for case in all_cases(sizes, ("bf16",), GPU)]
    losses = {kernel.shape[0]: kernel for kernel in cases if kernel.op == "cross_entropy"}
    assert sorted(losses) == sorted(sizes.elements), "one case of each size"
    for elements, kernel in losses.items():
        width = 131072 if elements >= 2**26 else 4096
        assert kernel.traffic_bytes == 4 * elements + 16 * elements // width


@pytest.mark.usefixtures("gpu")
def test_the_first_type_comes_first_and_every_kind_before_all_sizes() -> None:
    cases = list(all_cases(CUDA_COARSE, ("bf16", "fp32"), GPU))
    first = [case.first for case in cases]
    assert first == sorted(first, reverse=True)
    heads = [case.kernel.dtype for case in cases if case.first and case.kernel.op == "matmul"]
    assert heads == ["bf16", "fp32"]


def test_no_tensor_is_made_before_a_case_is_prepared() -> None:
    """Sizes that no machine holds, on a core: they can be listed."""
    huge = Sizes(
        sides=(2**30,), elements=(2**40,), heads=(2**10,), sequences=(2**20,), head_dims=(128,)
    )
    assert len(list(all_cases(huge, ("fp32",)))) > 20


@pytest.mark.usefixtures("young_heap")
def test_operands_are_freed_with_their_case() -> None:
    def alive() -> int:
        gc.collect()
        return sum(isinstance(item, torch.Tensor) for item in gc.get_objects())

    before = alive()
    for case in all_cases(TINY, ("fp32",)):
        kernel_timing.time_case(case, most_runs=1)
        assert alive() <= before + 2, case.kernel


def test_fused_operations_are_what_a_run_records() -> None:
    """Under Triton's interpreter: the name, and the bytes that it reads and writes."""
    rows = RowOperands(6, 64, 8, TensorSpec("fp32", CORE))
    for item in fused_cases.FUSED_OPS:
        run = item.streamed.prepare(rows)
        with Recorder() as recorder:
            run()
        (kernel,) = recorder.kernels
        assert kernel.op == item.streamed.op
        assert kernel.shape == (rows.rows * rows.width,)
        assert kernel.traffic_bytes == item.streamed.traffic_bytes(rows), kernel.op


def test_on_a_core_nothing_is_fused() -> None:
    assert not list(fused_cases.fused(4, TINY, TensorSpec("fp32", CORE)))


@pytest.mark.parametrize("shape", [(3,), (1000, 77), (2**17 + 5,)])
def test_operands_are_random_all_over(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    found = random_tensor(shape, torch.float32, CORE)
    assert found.shape == shape
    assert bool(found.isfinite().all())
    if found.numel() > 100:
        assert abs(float(found.std()) - 1) < 0.05
        assert float(found.flatten()[-100:].abs().max()) > 0.5


def test_copies_of_an_embedding_share_its_table_and_leave_none() -> None:
    def tables() -> set[int]:
        gc.collect()
        shape = (TINY.vocab, TINY.width)
        found = (t for t in gc.get_objects() if isinstance(t, torch.Tensor) and t.shape == shape)
        return {t.data_ptr() for t in found}

    every = all_cases(TINY, ("fp32",))
    case = next(case for case in every if case.kernel.op == "embedding")
    before = tables()
    runs = [case.prepare() for _ in range(3)]
    assert len(tables() - before) == 1
    first, second, _ = (run() for run in runs)
    assert isinstance(first, torch.Tensor)
    assert isinstance(second, torch.Tensor)
    assert not torch.equal(first, second), "each has tokens of its own"
    del runs, first, second, _
    assert tables() == before
