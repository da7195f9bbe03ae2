"""Block quantisation: fused and portable kernels agree bit by bit, and with the definition."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_doubles.kernel_devices import (
    DEVICES,
    DTYPES,
    LAYOUTS,
    dispatchers,
    random_values,
    strided,
)
from torch import Tensor

from shardwright.kernels.dispatch import Dispatcher
from shardwright.kernels.hadamard import hadamard, hadamard_matrix, hadamard_reference
from shardwright.kernels.quantization.block_format import BlockFormat, Quantized
from shardwright.kernels.quantization.block_portable import (
    block_uniforms,
    decode_reference,
    encode_reference,
    unpack,
)
from shardwright.kernels.quantization.block_quantize import (
    dequantize,
    dequantize_add_,
    dequantize_sum,
    quantize,
)
from shardwright.kernels.rounding import Philox
from shardwright.spec.errors import InputError

PORTABLE = Dispatcher("portable")
blocks = st.one_of(st.integers(1, 40).map(lambda half: 2 * half), st.sampled_from([64, 128, 160]))
streams = st.one_of(st.none(), st.builds(Philox, st.integers(0, 2**63 - 1), st.integers(0, 2**40)))


@st.composite
def forms(draw: st.DrawFn) -> BlockFormat:
    transform = draw(st.booleans())
    block = 32 * draw(st.integers(1, 4)) if transform else draw(blocks)
    return BlockFormat(bits=draw(st.sampled_from([4, 8])), block=block, hadamard=transform)


@st.composite
def numbers(draw: st.DrawFn, rows: int | None = None) -> Tensor:
    """Normal numbers of very different magnitudes, with runs of zeros, in any layout and type."""
    shape = (rows or draw(st.integers(1, 3)), draw(st.integers(1, 200)))
    x = random_values(*shape, seed=draw(st.integers(0, 9))) * 10.0 ** draw(st.integers(-6, 4))
    start = draw(st.integers(0, shape[1]))
    x[:, start : start + draw(st.integers(0, 150))] = 0
    return strided(x.to(draw(st.sampled_from(DTYPES))), draw(st.sampled_from(LAYOUTS)))


def assert_same(a: Quantized, b: Quantized) -> None:
    assert torch.equal(a.packed, b.packed)
    assert torch.equal(a.scales.view(torch.int32), b.scales.view(torch.int32))


@DEVICES
@settings(max_examples=25)
@given(x=numbers(), form=forms(), philox=streams)
def test_fused_and_portable_agree_bit_by_bit(
    device: str, x: Tensor, form: BlockFormat, philox: Philox | None
) -> None:
    portable, fused = dispatchers(device)
    x, width = x.to(device), x.shape[-1]
    expected, found = quantize(portable, x, form, philox), quantize(fused, x, form, philox)
    assert_same(found, expected)
    assert found.packed.shape == (x.shape[0], form.packed_bytes(width))
    a, b = (dequantize(kernels, found, form, width) for kernels in (fused, portable))
    assert torch.equal(a, b)
    weight = random_values(*x.shape, device=device).to(x.dtype)
    expected_weight = (weight.float() + a).to(x.dtype)
    for kernels, layout in ((fused, "turned"), (fused, "plain"), (portable, "gaps")):
        written = strided(weight, layout)
        assert dequantize_add_(kernels, written, found, form) is written
        assert torch.equal(written, expected_weight)


@settings(max_examples=100)
@given(x=numbers(), form=forms(), philox=streams)
def test_levels_are_those_of_the_definition(
    x: Tensor, form: BlockFormat, philox: Philox | None
) -> None:
    uniform = block_uniforms(x, form, philox) if philox else None
    expected, scales = encode_reference(x, form, uniform)
    found = quantize(PORTABLE, x, form, philox)
    torch.testing.assert_close(found.scales.double(), scales, rtol=1e-6, atol=1e-37)
    levels = unpack(found.packed, form)
    other = levels != expected
    assert bool(((levels - expected).abs() <= 1).all())
    # Where they differ, float32 fell on the other side of the threshold.
    decoded = decode_reference(levels, scales, x.shape[-1], form)
    by_definition = decode_reference(expected, scales, x.shape[-1], form)
    assert float(other.double().mean()) <= 0.02 or float((decoded - by_definition).norm()) == 0
    torch.testing.assert_close(
        dequantize(PORTABLE, found, form, x.shape[-1]).double(), decoded, rtol=1e-5, atol=1e-5
        * float(decoded.abs().max() + 1e-30),
    )  # fmt: skip


@settings(max_examples=100)
@given(x=numbers(), form=forms(), philox=streams)
def test_no_number_is_off_by_more_than_its_share_of_the_scale(
    x: Tensor, form: BlockFormat, philox: Philox | None
) -> None:
    form = BlockFormat(bits=form.bits, block=form.block)  # the transform spreads errors
    found = quantize(PORTABLE, x, form, philox)
    off = (dequantize(PORTABLE, found, form, x.shape[-1]).double() - x.double()).abs()
    scale = found.scales.double().repeat_interleave(form.block, -1)[:, : x.shape[-1]]
    share = 0.5 if philox is None else 1.0
    assert bool((off <= scale * share * (1 + 1e-4) + 127 * 2.0**-126).all())


@settings(max_examples=25)
@given(form=forms(), width=st.integers(1, 200), peers=st.integers(1, 5))
def test_sum_over_peers(form: BlockFormat, width: int, peers: int) -> None:
    portable, fused = dispatchers("cpu")
    x = random_values(peers, 2, width)
    sent = quantize(portable, x, form, Philox(1))
    found = dequantize_sum(fused, sent, form, width)
    assert torch.equal(found, dequantize_sum(portable, sent, form, width))
    levels = unpack(sent.packed, form)
    expected = decode_reference(levels, sent.scales, width, form).sum(0)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


@DEVICES
def test_many_programs_and_peers(device: str) -> None:
    portable, fused = dispatchers(device)
    x = random_values(2, 10_001, device=device)
    for form in (BlockFormat(bits=4, block=128, hadamard=True), BlockFormat(bits=8, block=2048)):
        sent = quantize(fused, x, form, Philox(3, 17))
        assert_same(sent, quantize(portable, x, form, Philox(3, 17)))
        a, b = (dequantize_sum(k, sent, form, 10_001) for k in (fused, portable))
        assert torch.equal(a, b)


@DEVICES
@pytest.mark.parametrize("form", [
    BlockFormat(bits=4, block=32), BlockFormat(bits=8, block=64, hadamard=True),
])  # fmt: skip
def test_zeros_stay_and_what_is_not_finite_becomes_nan(device: str, form: BlockFormat) -> None:
    x = random_values(5, 130, device=device)
    x[0] = 0
    x[1, 3], x[2, 70], x[3, 129] = torch.nan, torch.inf, -torch.inf
    x[4] *= 1e-39
    for kernels in dispatchers(device):
        sent = quantize(kernels, x, form, Philox(2))
        out = dequantize(kernels, sent, form, 130)
        bad = sent.scales.isnan()
        expected = torch.zeros_like(bad)
        for row, column in ((1, 3), (2, 70), (3, 129)):
            expected[row, column // form.block] = True
        assert torch.equal(bad, expected)
        assert torch.equal(out.isnan(), bad.repeat_interleave(form.block, -1)[:, :130])
        assert not out[0].any()
        assert not sent.packed[0].any()
        assert not out[4].any()  # a scale that not every device can compute with
        assert not sent.scales[4].any()


@DEVICES
def test_nothing_is_nothing(device: str) -> None:
    form = BlockFormat(bits=4, block=32)
    for kernels in dispatchers(device):
        for shape in ((0,), (0, 5), (3, 0)):
            sent = quantize(kernels, torch.zeros(shape, device=device), form)
            assert dequantize(kernels, sent, form, shape[-1]).shape == shape


def test_the_same_stream_gives_the_same_bits_and_another_gives_others() -> None:
    form, x = BlockFormat(bits=4, block=64), random_values(1000)
    one = quantize(PORTABLE, x, form, Philox(1)).packed
    assert torch.equal(one, quantize(PORTABLE, x, form, Philox(1)).packed)
    assert not torch.equal(one, quantize(PORTABLE, x, form, Philox(2)).packed)
    next_draw = Philox(1, form.counters(x))
    assert form.counters(x) == 16 * 16
    assert not torch.equal(one, quantize(PORTABLE, x, form, next_draw).packed)


@pytest.mark.parametrize("transform", [False, True])
def test_stochastic_rounding_is_unbiased(transform: bool) -> None:
    form, draws = BlockFormat(bits=4, block=32, hadamard=transform), 4000
    x = random_values(32)
    same = x.expand(draws, -1)  # each row draws bits of its own
    out = dequantize(PORTABLE, quantize(PORTABLE, same, form, Philox(9)), form, 32).double()
    standard_error = out.std(0) / draws**0.5
    assert bool(((out.mean(0) - x).abs() <= 4 * standard_error + 1e-6).all())
    assert float(standard_error.max()) > 0
    nearest = dequantize(PORTABLE, quantize(PORTABLE, x, form), form, 32)
    assert float((nearest - x).norm() / (out.mean(0) - x).norm()) > 10


@given(st.integers(1, 5), st.integers(0, 99))
def test_the_transform_is_its_matrix_and_its_own_inverse(groups: int, seed: int) -> None:
    x = random_values(2, 32 * groups, seed=seed)
    torch.testing.assert_close(hadamard(x).double(), hadamard_reference(x), rtol=0, atol=2e-5)
    torch.testing.assert_close(hadamard(hadamard(x)) / 32, x, rtol=0, atol=2e-6)
    matrix = hadamard_matrix()
    assert torch.equal(matrix @ matrix, 32 * torch.eye(32, dtype=torch.float64))


def test_no_gradient_flows() -> None:
    x, form = random_values(40).requires_grad_(), BlockFormat(bits=8, block=16)
    for kernels in dispatchers("cpu"):
        sent = quantize(kernels, x, form)
        weight = torch.zeros(40, requires_grad=True)
        before = weight._version
        assert dequantize_add_(kernels, weight, sent, form) is weight
        assert weight._version > before
        assert weight.is_leaf
        assert not any(t.requires_grad for t in (*sent, dequantize(kernels, sent, form, 40)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bits": 5, "block": 32}, "bits: got 5; allowed: 4 or 8; nearest: 4"),
        ({"bits": 4, "block": 33}, "block: got 33; allowed: a multiple of 2.*nearest: 32"),
        ({"bits": 4, "block": 0}, "block: got 0; .*nearest: 2"),
        ({"bits": 8, "block": 48, "hadamard": True}, "a multiple of 32 .*nearest: 64"),
        ({"bits": 8, "block": 65536}, "at most 32768; nearest: 32768"),
    ],
)
def test_a_format_that_cannot_be_is_refused(given: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        BlockFormat(**given)


def test_parts_that_do_not_fit_are_refused() -> None:
    form, x = BlockFormat(bits=4, block=32), random_values(2, 70)
    sent = quantize(PORTABLE, x, form)
    with pytest.raises(InputError, match=r"packed: got torch.uint8 of shape \(1, 2, 48\)"):
        dequantize(PORTABLE, sent, form, 100)
    with pytest.raises(InputError, match=r"packed: got torch\.uint8"):
        dequantize(PORTABLE, sent, BlockFormat(bits=8, block=32), 70)
    with pytest.raises(InputError, match="at least one peer"):
        dequantize_sum(PORTABLE, Quantized(*(part[0] for part in sent)), form, 70)
    with pytest.raises(InputError, match="at least one axis"):
        quantize(PORTABLE, torch.tensor(1.0), form)
