"""Grouped products: both variants against the definition, and which one is picked."""

from __future__ import annotations

from itertools import accumulate

import pytest
import torch
from checks.kernel_checks import (
    Best,
    any_of,
    assert_near,
    dtypes,
    layouts,
    on_devices,
    results,
    tensor,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from shardwright.kernels.dispatch import Dispatcher, Request, choose, explain
from shardwright.kernels.moe import grouped_matmul as module
from shardwright.kernels.moe.grouped_matmul import (
    GROUPED_MATMUL,
    grouped_matmul,
    grouped_matmul_reference,
)
from shardwright.spec.errors import InputError

AUTO, PORTABLE, BEST = Dispatcher(), Dispatcher("portable"), Best()
many = settings(max_examples=60)
rows_of_groups = st.lists(st.integers(0, 9), min_size=1, max_size=6)
HOPPER, BLACKWELL = (9, 0), (10, 0)


def ends_of(rows: list[int], device: str) -> Tensor:
    return torch.tensor(list(accumulate(rows)), dtype=torch.int32, device=device)


def check(
    kernels: Dispatcher,
    rows: list[int],
    k: int,
    n: int,
    dtype: torch.dtype,
    layout: str,
    device: str,
    seed: int = 0,
) -> None:
    inputs = [
        tensor((sum(rows), k), dtype, device, layout, seed),
        tensor((len(rows), k, n), dtype, device, layout, seed + 1),
    ]
    grad = tensor((sum(rows), n), dtype, device, layout, seed + 2).detach()
    offsets = ends_of(rows, device)
    found = results(lambda x, w: grouped_matmul(kernels, x, w, offsets), inputs, grad)
    exact = [x.detach().double() for x in inputs]
    expected = results(lambda x, w: grouped_matmul_reference(x, w, offsets), exact, grad)
    assert_near(found, expected, dtype)
    empty = torch.tensor([count == 0 for count in rows], device=device)
    assert not found[2][empty].any()


@on_devices
@many
@given(
    any_of(AUTO, PORTABLE), rows_of_groups, st.integers(1, 40), st.integers(1, 40), dtypes,
    layouts, st.integers(0, 9),
)  # fmt: skip
def test_any_shape(
    device: str, kernels: Dispatcher, rows: list[int], k: int, n: int, dtype: torch.dtype,
    layout: str, seed: int,
) -> None:  # fmt: skip
    check(kernels, rows, k, n, dtype, layout, device, seed)


@on_devices
@many
@given(
    any_of(AUTO, BEST), rows_of_groups.filter(any), st.integers(1, 5), st.integers(1, 5),
    any_of(torch.bfloat16, torch.float16, torch.float32), layouts, st.integers(0, 9),
)  # fmt: skip
def test_aligned_shapes_run_in_the_library(
    device: str, kernels: Dispatcher, rows: list[int], k: int, n: int, dtype: torch.dtype,
    layout: str, seed: int,
) -> None:  # fmt: skip
    """On cores the library's operation is a loop, and holds to the same rules of strides."""
    kernels = AUTO if device == "cuda" else kernels
    check(kernels, rows, 8 * k, 8 * n, dtype, layout, device, seed)


strides = st.tuples(st.integers(0, 9), st.integers(1, 3), st.integers(1, 3))


@many
@given(strides, st.booleans(), layouts, any_of(torch.bfloat16, torch.float16), st.integers(0, 9))
def test_operands_reach_the_kernel_as_it_takes_them(
    sizes: tuple[int, int, int], swapped: bool, layout: str, dtype: torch.dtype, start: int
) -> None:
    """The rules of ``GroupedMMUtils.h``, which on cores are not asked of where a tensor starts."""
    rows, k, n = sizes[0], 8 * sizes[1], 8 * sizes[2]
    x = tensor((rows + start, k), dtype, "cpu", layout, 0).detach()[start:]
    weight = tensor((3, k, n), dtype, "cpu", layout, 1).detach()
    weight = weight.transpose(1, 2).contiguous().transpose(1, 2) if swapped else weight
    given_x, given_weight = module.kernel_rows(x), module.kernel_stack(weight)
    assert torch.equal(given_x, x)
    assert torch.equal(given_weight, weight)
    assert given_x.stride(1) == 1
    assert 1 in given_weight.stride()[1:]
    for found in (given_x, given_weight):
        assert found.data_ptr() % 16 == 0
        assert all(stride == 1 or stride % 8 == 0 for stride in found.stride())
    if layout == "dense":
        assert given_x.data_ptr() == x.data_ptr()
        assert given_weight.data_ptr() == weight.data_ptr()


@on_devices
@pytest.mark.parametrize(("rows", "k", "n"), [([0, 0], 8, 8), ([3, 0], 0, 8), ([3, 0], 8, 0)])
def test_operands_without_elements(device: str, rows: list[int], k: int, n: int) -> None:
    inputs = [
        tensor((sum(rows), k), torch.bfloat16, device, "dense", 0),
        tensor((len(rows), k, n), torch.bfloat16, device, "dense", 1),
    ]
    kernels = AUTO if device == "cuda" else BEST
    offsets = ends_of(rows, device)
    found = results(lambda x, w: grouped_matmul(kernels, x, w, offsets), inputs)
    assert [f.shape for f in found] == [(sum(rows), n), inputs[0].shape, inputs[1].shape]
    assert not any(bool(f.any()) for f in found)


def test_only_what_is_asked_for_is_computed() -> None:
    x = tensor((4, 8), torch.float32, "cpu", "dense", 0)
    weight = tensor((2, 8, 8), torch.float32, "cpu", "dense", 1)
    for kernels in (PORTABLE, BEST):
        out = grouped_matmul(kernels, x, weight.detach(), ends_of([1, 3], "cpu"))
        (grad,) = torch.autograd.grad(out.sum(), [x])
        assert grad.shape == x.shape
        out = grouped_matmul(kernels, x.detach(), weight, ends_of([1, 3], "cpu"))
        (grad,) = torch.autograd.grad(out.sum(), [weight])
        assert grad.shape == weight.shape


@pytest.mark.parametrize(
    ("capability", "dtype", "shape", "picked", "why"),
    [
        (HOPPER, torch.bfloat16, (8, 64, 128), "one_kernel", None),
        (BLACKWELL, torch.bfloat16, (1023, 8, 8), "one_kernel", None),
        (HOPPER, torch.bfloat16, (1024, 8, 8), "loop", "1024 groups are more than 1023"),
        (HOPPER, torch.bfloat16, (8, 60, 128), "loop", "rows of 60 and 128 elements"),
        (HOPPER, torch.bfloat16, (8, 64, 4), "loop", "no multiples of 16 bytes"),
        (HOPPER, torch.float16, (8, 64, 64), "loop", "for float16"),
        (HOPPER, torch.float32, (8, 64, 64), "loop", "for float32"),
        ((8, 0), torch.bfloat16, (8, 64, 64), "loop", "capability 8.0, not 9 or 10"),
        ((12, 0), torch.bfloat16, (8, 64, 64), "loop", "capability 12.0, not 9 or 10"),
    ],
)
def test_what_a_cuda_device_gets_and_why(
    capability: tuple[int, int], dtype: torch.dtype, shape: tuple[int, ...], picked: str,
    why: str | None, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(module.sys, "platform", "linux")
    monkeypatch.setattr(module, "capability", lambda index: capability)
    choice = choose(GROUPED_MATMUL, Request(torch.device("cuda", 0), dtype, shape))
    assert choice.variant.name == picked
    (line,) = explain([choice])
    assert why is None or why in line
    assert (why is None) == (choice.passed_over == ())


def test_weights_gradients_of_empty_groups_are_cleared_where_the_kernel_leaves_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tensor that says it is on a device stands for one: the clearing is plain operations."""

    class OnDevice(torch.Tensor):
        device = torch.device("cuda", 0)  # type: ignore[assignment]

    left = torch.full((3, 2, 2), float("nan")).as_subclass(OnDevice)
    left[1] = 5
    offsets = ends_of([0, 4, 0], "cpu")
    monkeypatch.setattr(module, "capability", lambda index: HOPPER)
    module.clear_empty(left, offsets)
    assert bool(left[0].isnan().all())
    monkeypatch.setattr(module, "capability", lambda index: BLACKWELL)
    module.clear_empty(left, offsets)
    assert left.sum((1, 2)).tolist() == [0, 20, 0]


def test_what_does_not_fit_together_is_one_line() -> None:
    x = tensor((4, 8), torch.float32, "cpu", "dense", 0)
    weight = tensor((2, 8, 8), torch.float32, "cpu", "dense", 1)
    good = ends_of([1, 3], "cpu")
    with pytest.raises(InputError, match=r"x: got float32 \(4, 6\); allowed: float32 \(rows, 8\)"):
        grouped_matmul(AUTO, x[:, :6], weight, good)
    with pytest.raises(InputError, match="x: got float64"):
        grouped_matmul(AUTO, x.double(), weight, good)
    with pytest.raises(InputError, match="offsets: got int64"):
        grouped_matmul(AUTO, x, weight, good.long())
    for rows in ([1, 2], [3, 2], [5, -1]):
        with pytest.raises(InputError, match="rising to the 4 rows"):
            grouped_matmul(AUTO, x, weight, ends_of(rows, "cpu"))
