"""Every kernel's result and gradients against its definition in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from checks.kernel_checks import assert_equals_definition, tensor
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from shardwright.kernels.attention.attention import (
    _flash_on_cpu,
    _flash_on_device,
    attention_reference,
    flash_attention,
    unfused_attention,
)
from shardwright.kernels.dense.activation import gelu, swiglu
from shardwright.kernels.dense.cross_entropy import cross_entropy
from shardwright.kernels.dense.norm import layer_norm, rms_norm, rms_norm_reference
from shardwright.kernels.dispatch import Dispatcher
from shardwright.spec.errors import RunError

Function = Callable[..., Tensor]
PORTABLE = Dispatcher("portable")


def random_tensors(*shapes: tuple[int, ...], dtype: torch.dtype) -> list[Tensor]:
    return [tensor(s, dtype, "cpu", "dense", seed).detach() for seed, s in enumerate(shapes)]


dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)


@dtypes
def test_rms_norm(dtype: torch.dtype) -> None:
    assert_equals_definition(
        lambda x, w: rms_norm(PORTABLE, x, w, 1e-5),
        lambda x, w: rms_norm_reference(x, w, 1e-5),
        random_tensors((5, 3, 24), (24,), dtype=dtype),
    )


@dtypes
def test_layer_norm(dtype: torch.dtype) -> None:
    def definition(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight + bias

    inputs = random_tensors((5, 3, 24), (24,), (24,), dtype=dtype)
    assert_equals_definition(lambda *a: layer_norm(*a, 1e-5), definition, inputs)


@dtypes
def test_swiglu(dtype: torch.dtype) -> None:
    inputs = random_tensors((7, 16), (7, 16), dtype=dtype)
    ours = partial(swiglu, PORTABLE)
    assert_equals_definition(ours, lambda g, u: g * torch.sigmoid(g) * u, inputs)


@pytest.mark.parametrize("tanh", [True, False])
def test_gelu(tanh: bool) -> None:
    def definition(x: Tensor) -> Tensor:
        if tanh:
            inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
            return x / 2 * (1 + torch.tanh(inner))
        return x / 2 * (1 + torch.erf(x / math.sqrt(2)))

    inputs = random_tensors((7, 16), dtype=torch.float32)
    assert_equals_definition(lambda x: gelu(x, tanh), definition, inputs)


@dtypes
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("attention", [flash_attention, unfused_attention])
def test_attention(attention: Function, kv_heads: int, dtype: torch.dtype) -> None:
    shapes = [(9, 2, 4, 8), (9, 2, kv_heads, 8), (9, 2, kv_heads, 8)]
    inputs = random_tensors(*shapes, dtype=dtype)
    assert_equals_definition(attention, attention_reference, inputs)


@dtypes
@pytest.mark.parametrize("keys", [9, 5, 14])
@pytest.mark.parametrize("attention", [flash_attention, unfused_attention])
def test_attention_to_all_keys(attention: Function, keys: int, dtype: torch.dtype) -> None:
    inputs = random_tensors((9, 2, 4, 8), (keys, 2, 2, 8), (keys, 2, 2, 8), dtype=dtype)
    ours, definition = (partial(f, causal=False) for f in (attention, attention_reference))
    assert_equals_definition(ours, definition, inputs)


@dtypes
@pytest.mark.parametrize("causal", [True, False])
def test_attention_with_a_learned_bias(causal: bool, dtype: torch.dtype) -> None:
    inputs = random_tensors(*[(9, 2, 4, 8)] * 3, (4, 9, 9), dtype=dtype)

    def ours(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        return unfused_attention(query, key, value, causal, bias)

    def definition(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        return attention_reference(query, key, value, causal, bias)

    assert_equals_definition(ours, definition, inputs)


@pytest.mark.parametrize("attention", [flash_attention, unfused_attention, attention_reference])
def test_attention_never_sees_the_future(attention: Function) -> None:
    query, key, value = random_tensors(*[(9, 2, 4, 8)] * 3, dtype=torch.float32)
    before = attention(query, key, value)
    key[5:], value[5:] = 7.0, -7.0
    after = attention(query, key, value)
    assert torch.equal(before[:5], after[:5])
    assert not torch.allclose(before[5:], after[5:])


class Names(TorchDispatchMode):
    """Writes down the library's name of every operation."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kv_heads", [1, 4])
def test_flash_attention_is_the_flash_kernel_where_others_are_preferred(kv_heads: int) -> None:
    shapes = [(9, 2, 4, 8), (9, 2, kv_heads, 8), (9, 2, kv_heads, 8)]
    inputs = [x.requires_grad_() for x in random_tensors(*shapes, dtype=torch.float32)]
    with sdpa_kernel(SDPBackend.MATH), Names() as names:
        flash_attention(*inputs).sum().backward()
    flash = "_scaled_dot_product_flash_attention_for_cpu"
    assert [n for n in names.seen if "attention" in n] == [flash, flash + "_backward"]
    assert not {"bmm", "_softmax", "baddbmm"} & set(names.seen)


@pytest.mark.parametrize("path", [_flash_on_cpu, _flash_on_device])
@pytest.mark.filterwarnings("ignore::UserWarning")  # the library's reasons, one warning each
def test_no_flash_kernel_is_one_line_and_no_other_kernel(path: Function) -> None:
    query, key, _ = random_tensors(*[(2, 4, 9, 8)] * 3, dtype=torch.float32)
    (wide,) = random_tensors((2, 4, 9, 16), dtype=torch.float32)
    with Names() as names, pytest.raises(RunError, match="no flash attention for float32") as found:
        path(query, key, wide)
    assert "\n" not in str(found.value)
    assert "use unfused" in str(found.value)
    assert not {"bmm", "_softmax", "baddbmm"} & set(names.seen)


def test_the_two_ways_to_the_flash_kernel_agree() -> None:
    query, key, value = random_tensors(*[(2, 4, 9, 8)] * 3, dtype=torch.float32)
    expected = _flash_on_cpu(query, key, value)
    assert torch.equal(_flash_on_device(query, key, value), expected)
    with sdpa_kernel(SDPBackend.MATH):  # the choice falls on another kernel, which is barred
        assert torch.equal(_flash_on_device(query, key, value), expected)


@dtypes
def test_cross_entropy(dtype: torch.dtype) -> None:
    targets = torch.tensor([[0, 3], [9, 3], [5, 8]])
    (logits,) = random_tensors((6, 10), dtype=dtype)

    def ours(x: Tensor) -> Tensor:
        return cross_entropy(x.clone(), targets, 0.25)  # it works in place

    def definition(x: Tensor) -> Tensor:
        return 0.25 * F.cross_entropy(x, targets.flatten(), reduction="sum")

    assert_equals_definition(ours, definition, [logits])


def test_cross_entropy_of_huge_logits_is_finite() -> None:
    logits = torch.tensor([[1e4, 0.0], [0.0, 1e4]])
    loss = cross_entropy(logits, torch.tensor([0, 0]), 1.0)
    assert float(loss) == pytest.approx(1e4)
