"""Which kernels attention is timed with on a device, and on what: a meta device stands in."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend
from torch.utils._python_dispatch import TorchDispatchMode

from shardwright.profiler.cases.case import Case, TensorSpec
from shardwright.profiler.cases.shaped_cases import attention
from shardwright.profiler.cases.sizes import Sizes
from shardwright.spec.report.work_items import ATTENTIONS, kernel_name

NOWHERE = TensorSpec("bf16", torch.device("meta"))
HEADS, SEQ, DIM = 4, 32, 64
ONE = Sizes(sides=(8,), elements=(8,), heads=(HEADS,), sequences=(SEQ,), head_dims=(DIM,))


class Called(TorchDispatchMode):
    """The attention kernels that ran, and their tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, list[torch.Tensor]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__.partition(".")[0]
        if kernel_name(name) in ATTENTIONS:
            self.found.append((name, [a for a in args if isinstance(a, torch.Tensor)]))
        return func(*args, **(kwargs or {}))


@pytest.fixture(params=[SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH])
def chosen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the library is made to answer; the name of the kernel that a run takes then."""

    def choice(*operands: Any, enable_gqa: bool) -> int:
        query, key, value, *rest = operands
        assert all(t.requires_grad for t in (query, key, value)), "as in training"
        assert (*rest, enable_gqa) == (None, 0.0, True, False)
        value_: int = request.param.value
        return value_

    monkeypatch.setattr(torch, "_fused_sdp_choice", choice)
    cudnn = request.param is SDPBackend.CUDNN_ATTENTION
    return f"_scaled_dot_product_{'cudnn' if cudnn else 'flash'}_attention"


def ran(case: Case) -> tuple[str, list[torch.Tensor]]:
    run = case.prepare()
    with Called() as called:
        run()
    (only,) = called.found
    return only


def test_the_kernels_of_the_library_s_choice_are_timed(chosen: str) -> None:
    forward, backward = (ran(case) for case in attention(ONE, NOWHERE))
    assert forward[0] == chosen
    assert backward[0] == f"{chosen}_backward"


def test_rows_have_the_names_that_a_run_records(chosen: str) -> None:
    for case in attention(ONE, NOWHERE):
        assert case.kernel.op == kernel_name(ran(case)[0]), chosen


@pytest.mark.usefixtures("chosen")
def test_operands_lie_as_in_a_run() -> None:
    """As (seq, batch, heads, head_dim), of which the kernels get a view."""
    whole = torch.empty(SEQ, 1, HEADS, DIM, device="meta").permute(1, 2, 0, 3)
    for case in attention(ONE, NOWHERE):
        _, tensors = ran(case)
        wide = [t for t in tensors if t.shape == whole.shape]
        assert len(wide) == (3 if case.kernel.op == "flash_attention" else 5)
        for tensor in wide:
            assert tensor.stride() == whole.stride()
            assert not tensor.requires_grad
