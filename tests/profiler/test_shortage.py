"""A case that a device has no room for is skipped and told; any other error ends a sweep."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from triton.runtime.errors import OutOfResources, PTXASError

from shardwright.executor.launch.rank_context import RankContext
from shardwright.profiler.cases.all_cases import Sizes, all_cases
from shardwright.profiler.cases.case import Case
from shardwright.profiler.cases.out_of_resources import shortage
from shardwright.profiler.timing import kernel_timing

CORE = torch.device("cpu")
TINY = Sizes(sides=(8, 16), elements=(1024,), heads=(2,), sequences=(16,), head_dims=(8,))
SHORTAGES = {
    torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"): "memory",
    RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be"): "memory",
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"): "CUBLAS",
    OutOfResources(262144, 232448, "shared memory"): "Required: 262144",
    RuntimeError("CUDA error: too many resources requested for launch"): "resources",
}
MISTAKES = [
    RuntimeError("CUDA error: an illegal memory access was encountered"),
    PTXASError("Internal Triton PTX codegen error"),
    TypeError("no such argument"),
]


def measured(monkeypatch: pytest.MonkeyPatch, error: Exception, in_prepare: bool) -> object:
    """A sweep whose third case raises."""

    def fail() -> object:
        raise error

    def cases() -> Iterator[Case]:
        for number, case in enumerate(all_cases(TINY, ("fp32",))):
            broken = fail if in_prepare else lambda: fail
            yield case._replace(prepare=broken, first=True) if number == 2 else case

    monkeypatch.setattr(kernel_timing, "all_cases", lambda *_: cases())
    monkeypatch.setattr(kernel_timing, "ENOUGH_S", 0.0)
    context = RankContext(0, 1, CORE, 60.0, lambda event: None)
    payload = {"coarse": True, "dtypes": ["fp32"], "budget_s": 60.0}
    return kernel_timing.measure_kernels(context, payload)


@pytest.mark.parametrize("in_prepare", [True, False])
@pytest.mark.parametrize("error", SHORTAGES, ids=lambda error: type(error).__name__)
def test_a_case_without_room_is_skipped_and_told(
    monkeypatch: pytest.MonkeyPatch, error: Exception, in_prepare: bool
) -> None:
    found = measured(monkeypatch, error, in_prepare)
    assert isinstance(found, dict)
    every = list(all_cases(TINY, ("fp32",)))
    kernel = every[2].kernel
    (skipped,) = found["skipped"]
    why = skipped.pop("why")
    assert skipped == {"op": kernel.op, "shape": list(kernel.shape), "dtype": "fp32"}
    assert "\n" not in why
    assert SHORTAGES[error] in why
    assert len(found["rows"]) == len(every) - 1


@pytest.mark.parametrize("error", MISTAKES, ids=lambda error: type(error).__name__)
def test_any_other_error_ends_the_sweep(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    assert shortage(error) is None
    with pytest.raises(type(error), match=str(error)[:20]):
        measured(monkeypatch, error, in_prepare=False)
