"""What 4 and 8 bits cost: the ratios that make SDP4Bit's choices (2024) the right ones.

Errors are norms over norms, of seeded numbers. Group sizes are the paper's: 2048 for weights;
512 in 8 and 128 in 4 bits for gradients.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from shardwright.kernels.dispatch import Dispatcher
from shardwright.kernels.quantization.block_format import BlockFormat, Quantized
from shardwright.kernels.quantization.block_quantize import dequantize, dequantize_sum, quantize
from shardwright.kernels.rounding import Philox

PORTABLE = Dispatcher("portable")
WEIGHTS = BlockFormat(bits=4, block=2048)


def error(found: Tensor, exact: Tensor, over: Tensor | None = None) -> float:
    """Norm of what is off over the norm of ``over``, usually the exact numbers."""
    return float((found - exact).norm() / (exact if over is None else over).norm())


def decoded(x: Tensor, form: BlockFormat) -> Tensor:
    return dequantize(PORTABLE, quantize(PORTABLE, x, form), form, x.shape[-1])


def heavy_tailed(*shape: int) -> Tensor:
    """Student's t with 3 degrees of freedom, which gradients resemble."""
    generator = torch.Generator().manual_seed(0)
    normal, *squares = (torch.randn(shape, generator=generator) for _ in range(4))
    return normal / (sum(z.square() for z in squares) / 3).sqrt()


def test_four_bits_do_for_differences_of_weights_and_not_for_weights() -> None:
    """Weights of 0.02 and updates of 5.3e-5, at which weights in 4 bits err 57 updates.

    Differences are against the bf16 weights, so that what rounding to bf16 lost is in them.
    """
    generator = torch.Generator().manual_seed(0)
    weights = 0.02 * torch.randn(2**19, generator=generator)
    update = 5.3e-5 * torch.randn(2**19, generator=generator)
    model, target = weights.bfloat16().float(), weights + update
    assert error(decoded(target, WEIGHTS), target, update) == pytest.approx(57, rel=0.05)
    moved = model + decoded(target - model, WEIGHTS)
    assert error(moved, target, update) == pytest.approx(0.20, abs=0.02)
    # The rest is bf16's own, which the model has without any quantisation.
    rounded = error(target.bfloat16().float(), target, update)
    assert error(moved.bfloat16().float(), target, update) == pytest.approx(rounded, rel=0.1)
    assert 0.4 < rounded < 0.7


def test_errors_of_differences_do_not_add_up() -> None:
    """Each difference is taken against the weights as they are, so it repairs the last one."""
    generator = torch.Generator().manual_seed(0)
    target = 0.02 * torch.randn(2**15, generator=generator)
    model, off = target.bfloat16(), []
    for _ in range(30):
        update = 5.3e-5 * torch.randn(2**15, generator=generator)
        target = target + update
        model = (model.float() + decoded(target - model.float(), WEIGHTS)).bfloat16()
        off.append(error(model.float(), target, update))
    assert max(off[-5:]) <= 1.1 * off[0]


def test_the_transform_halves_the_error_of_heavy_tails_only() -> None:
    plain = BlockFormat(bits=4, block=128)
    transformed = BlockFormat(bits=4, block=128, hadamard=True)
    gradients, normal = (
        heavy_tailed(2**19),
        torch.randn(2**19, generator=torch.Generator().manual_seed(1)),
    )
    assert error(decoded(gradients, plain), gradients) == pytest.approx(0.22, abs=0.02)
    assert error(decoded(gradients, transformed), gradients) == pytest.approx(0.115, abs=0.01)
    without, with_it = (error(decoded(normal, form), normal) for form in (plain, transformed))
    assert with_it == pytest.approx(without, rel=0.02)


def reduce_scatter(
    x: Tensor, nodes: int, local: int, bits: tuple[int, int], hadamard: bool
) -> Tensor:
    """Sum of (ranks, ranks · shard) in two hops: to local ranks, then across nodes.

    Rank = node · local + place. Hop one goes in groups of 512, hop two of 128; in between the
    sum stays transformed. Rounded by chance.
    """
    shard = x.shape[1] // (nodes * local)
    first = BlockFormat(bits=bits[0], block=512, hadamard=hadamard)
    second = BlockFormat(bits=bits[1], block=128, hadamard=hadamard)
    between = [BlockFormat(bits=form.bits, block=form.block) for form in (first, second)]
    streams = (Philox(7, draw << 32) for draw in itertools.count())
    # (to place, node, from place, to node, shard)
    pieces = x.view(nodes, local, nodes, local, shard).permute(3, 0, 1, 2, 4)
    crossing = []
    for node, place in itertools.product(range(nodes), range(local)):
        sent = quantize(PORTABLE, pieces[place, node], first, next(streams))
        summed = dequantize_sum(PORTABLE, sent, between[0], shard)
        crossing.append(quantize(PORTABLE, summed, between[1], next(streams)))
    packed, scales = (torch.stack(parts) for parts in zip(*crossing, strict=True))
    out = []
    for to_node, place in itertools.product(range(nodes), range(local)):
        peers = Quantized(packed[place::local, to_node], scales[place::local, to_node])
        out.append(dequantize_sum(PORTABLE, peers, second, shard))
    return torch.cat(out)


@pytest.mark.parametrize(
    ("bits", "hadamard", "expected"),
    [((4, 4), False, 0.55), ((8, 4), False, 0.30), ((8, 4), True, 0.17), ((8, 8), True, None)],
)
def test_two_hops_over_four_nodes_of_two(
    bits: tuple[int, int], hadamard: bool, expected: float | None
) -> None:
    gradients = heavy_tailed(8, 8 * 4096)
    found = error(reduce_scatter(gradients, 4, 2, bits, hadamard), gradients.sum(0))
    assert found == pytest.approx(expected, rel=0.1) if expected else found < 0.02
