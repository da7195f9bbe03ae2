"""Projections of rows in groups against their definition, empty groups included."""

from __future__ import annotations

import pytest
import torch

from shardwright.kernels.dispatch import Dispatcher
from shardwright.kernels.moe.grouped_linear import grouped_linear
from shardwright.kernels.moe.grouped_matmul import grouped_matmul_reference
from shardwright.spec.errors import InputError

K, N = 6, 5


def ends(*counts: int) -> torch.Tensor:
    return torch.tensor(counts).cumsum(0).to(torch.int32)


@pytest.mark.parametrize("counts", [(3, 2, 4), (0, 5, 0), (0, 0, 0), (1, 0, 7)])
@pytest.mark.parametrize("projections", [1, 2])
def test_every_group_has_its_own_weights(counts: tuple[int, ...], projections: int) -> None:
    generator = torch.Generator().manual_seed(sum(counts))
    x = torch.randn(sum(counts), K, generator=generator).requires_grad_()
    weights = [
        torch.randn(len(counts), N, K, generator=generator).requires_grad_()
        for _ in range(projections)
    ]
    copies = [t.detach().clone().requires_grad_() for t in (x, *weights)]
    outs = grouped_linear(Dispatcher(), x, weights, ends(*counts))
    wanted = [
        grouped_matmul_reference(copies[0], w.transpose(1, 2), ends(*counts)) for w in copies[1:]
    ]
    grads = [torch.randn(out.shape, generator=generator) for out in outs]
    torch.autograd.backward(outs, grads)
    torch.autograd.backward(wanted, [grad.double() for grad in grads])
    for out, right in zip(outs, wanted, strict=True):
        assert torch.allclose(out.double(), right, atol=1e-5)
    for mine, right in zip((x, *weights), copies, strict=True):
        assert mine.grad is not None
        assert right.grad is not None
        assert mine.grad.is_contiguous()
        assert torch.allclose(mine.grad, right.grad, atol=1e-5)


def test_shapes_that_do_not_fit_are_refused() -> None:
    weight = torch.zeros(2, N, K)
    with pytest.raises(InputError, match="rows, 6"):
        grouped_linear(Dispatcher(), torch.zeros(3, K + 1), [weight], ends(1, 2))
    with pytest.raises(InputError, match="offsets"):
        grouped_linear(Dispatcher(), torch.zeros(3, K), [weight], ends(1, 1, 1))
