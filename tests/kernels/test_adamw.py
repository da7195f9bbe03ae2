"""Steps of AdamW: both variants against the definition, over several steps and tensors."""

from __future__ import annotations

import pytest
import torch
from checks.kernel_checks import any_of, assert_near, dtypes, layouts, on_devices, tensor
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.kernels.dense.adamw import (
    ADAMW,
    AdamWState,
    adamw_reference,
    adamw_step,
    fused_adamw,
)
from shardwright.kernels.dispatch import Dispatcher, Request, choose

AUTO, PORTABLE = Dispatcher(), Dispatcher("portable")
shapes = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=3), min_size=1, max_size=4)


@on_devices
@settings(max_examples=50)
@given(
    any_of(AUTO, PORTABLE), shapes, dtypes, layouts, st.integers(1, 3), any_of(0.0, 0.1),
    any_of(1e-3, 0.5), st.integers(0, 9),
)  # fmt: skip
def test_steps(
    device: str, kernels: Dispatcher, sizes: list[list[int]], dtype: torch.dtype, layout: str,
    steps: int, decay: float, rate: float, seed: int,
) -> None:  # fmt: skip
    options = {
        "learning_rate": rate,
        "beta1": 0.9,
        "beta2": 0.95,
        "eps": 1e-8,
        "weight_decay": decay,
    }
    parameters = [tensor(s, dtype, device, layout, seed).detach() for s in sizes]
    firsts = [torch.zeros_like(p) for p in parameters]
    seconds = [torch.zeros_like(p) for p in parameters]
    counts = [torch.zeros((), device=device) for _ in parameters]
    for step in range(1, steps + 1):
        grads = [tensor(s, dtype, device, "dense", seed + step).detach() for s in sizes]
        before = [g.clone() for g in grads]
        # From what is stored: rounding of earlier steps is no error of this one.
        expected = [
            adamw_reference(*tensors, step, **options)
            for tensors in zip(parameters, grads, firsts, seconds, strict=True)
        ]
        adamw_step(kernels, AdamWState(parameters, grads, firsts, seconds, counts), **options)
        for found, exact in zip(zip(parameters, firsts, seconds, strict=True), expected,
                                strict=True):  # fmt: skip
            for a, b in zip(found, exact, strict=True):
                assert_near([a], [b], dtype)
        assert all(torch.equal(a, b) for a, b in zip(grads, before, strict=True))
        assert [float(count) for count in counts] == [step] * len(counts)


@pytest.mark.parametrize(
    ("device", "dtype", "picked", "why"),
    [
        ("cpu", torch.float32, "fused", None),
        ("cpu", torch.float64, "fused", None),
        ("cuda", torch.bfloat16, "fused", None),
        ("meta", torch.float32, "foreach", "no fused step for meta"),
        ("cuda", torch.float8_e4m3fn, "foreach", "not for float8_e4m3fn"),
    ],
)
def test_what_is_picked_and_why(
    device: str, dtype: torch.dtype, picked: str, why: str | None
) -> None:
    choice = choose(ADAMW, Request(torch.device(device), dtype, (4, 4)))
    assert choice.variant.name == picked
    assert dict(choice.passed_over) == ({} if why is None else {"fused": why})


def test_the_optimizer_is_told_which_form_to_take() -> None:
    parameter = torch.zeros(3)
    assert fused_adamw(Dispatcher(), parameter)
    assert fused_adamw(Dispatcher("fused"), parameter)
    assert not fused_adamw(Dispatcher("portable"), parameter)


def test_no_parameters_are_no_step() -> None:
    kernels = Dispatcher()
    options = {"learning_rate": 1.0, "beta1": 0.9, "beta2": 0.9, "eps": 1e-8, "weight_decay": 0.0}
    adamw_step(kernels, AdamWState([], [], [], [], []), **options)
    assert kernels.choices() == ()
