"""Steps of Lion against the definition, over several steps and tensors."""

from __future__ import annotations

import torch
from checks.kernel_checks import any_of, assert_near, dtypes, layouts, on_devices, tensor
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.kernels.dense.lion import lion_reference, lion_step

shapes = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=3), min_size=1, max_size=4)


@on_devices
@settings(max_examples=50)
@given(shapes, dtypes, layouts, st.integers(1, 3), any_of(0.0, 0.1), st.integers(0, 9))
def test_steps(
    device: str, sizes: list[list[int]], dtype: torch.dtype, layout: str,
    steps: int, decay: float, seed: int,
) -> None:  # fmt: skip
    options = {"learning_rate": 1e-2, "beta1": 0.9, "beta2": 0.99, "weight_decay": decay}
    parameters = [tensor(s, dtype, device, layout, seed).detach() for s in sizes]
    moments = [torch.zeros_like(p) for p in parameters]
    for step in range(1, steps + 1):
        grads = [tensor(s, dtype, device, "dense", seed + step).detach() for s in sizes]
        before = [g.clone() for g in grads]
        expected = [
            lion_reference(*tensors, **options)
            for tensors in zip(parameters, grads, moments, strict=True)
        ]
        lion_step(parameters, grads, moments, **options)
        for found, exact in zip(zip(parameters, moments, strict=True), expected, strict=True):
            assert_near([found[1]], [exact[1]], dtype)
            assert_near([found[0]], [exact[0]], dtype)
        assert all(torch.equal(a, b) for a, b in zip(grads, before, strict=True))


def test_a_gradient_of_zero_moves_nothing_but_decay() -> None:
    weight, moment = torch.full((4,), 2.0), torch.zeros(4)
    options = {"learning_rate": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.5}
    lion_step([weight], [torch.zeros(4)], [moment], **options)
    assert torch.equal(weight, torch.full((4,), 2.0 * (1 - 0.05)))
