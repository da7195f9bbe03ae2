"""Every form of a family equals its float64 reference, gradients included; choices can be run."""

from __future__ import annotations

import os

import pytest
import torch
from checks.kernel_checks import assert_equals_definition, chosen, layouts, on_devices, tensor
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_doubles import interpreter  # noqa: F401
from torch import Tensor

from shardwright.executor.tracing.recorder import Recorder
from shardwright.kernels import fused
from shardwright.kernels.attention.rope import ROPE, Angles, apply_rope, rope_reference
from shardwright.kernels.dense.activation import (
    GEGLU,
    SWIGLU,
    geglu,
    geglu_reference,
    swiglu,
    swiglu_reference,
)
from shardwright.kernels.dense.linear_cross_entropy import (
    LINEAR_CROSS_ENTROPY,
    linear_cross_entropy,
    linear_cross_entropy_reference,
)
from shardwright.kernels.dense.norm import RMS_NORM, rms_norm, rms_norm_reference
from shardwright.kernels.dispatch import Dispatcher, Family, Policy, explain
from shardwright.spec.errors import RunError
from shardwright.spec.report import work_items as words

FAMILIES = (RMS_NORM, SWIGLU, GEGLU, ROPE, LINEAR_CROSS_ENTROPY)
POLICIES: tuple[Policy, ...] = ("portable", "fused")
policies = pytest.mark.parametrize("policy", POLICIES)
sizes = st.integers(1, 7)
widths = st.one_of(st.integers(1, 40), st.sampled_from((64, 127, 256)))


def dtypes(device: str, policy: Policy) -> st.SearchStrategy[torch.dtype]:
    """On cores the interpreter gets bf16 arithmetic wrong."""
    if device == "cpu" and policy == "fused":
        return st.sampled_from((torch.float32, torch.float16))
    return st.sampled_from((torch.float32, torch.bfloat16))


def drawn(
    data: st.DataObject, device: str, policy: Policy, *shapes: tuple[int, ...]
) -> list[Tensor]:
    """Operands of one type, laid out in some way."""
    dtype, seed = data.draw(dtypes(device, policy)), data.draw(st.integers(0, 99))
    return [
        tensor(shape, dtype, device, data.draw(layouts), seed + n) for n, shape in enumerate(shapes)
    ]


@on_devices
@policies
@settings(max_examples=12)
@given(data=st.data(), rows=sizes, batch=sizes, width=widths)
def test_rms_norm(
    policy: Policy, device: str, data: st.DataObject, rows: int, batch: int, width: int
) -> None:
    kernels, width = Dispatcher(policy), width + 3  # a row of one has no gradient but rounding
    inputs = drawn(data, device, policy, (rows, batch, width), (width,))
    assert_equals_definition(
        lambda x, w: rms_norm(kernels, x, w, 1e-5),
        lambda x, w: rms_norm_reference(x, w, 1e-5),
        inputs,
    )


@on_devices
@policies
@pytest.mark.parametrize("name", ["swiglu", "geglu"])
@settings(max_examples=8)
@given(data=st.data(), rows=sizes, batch=sizes, width=widths)
def test_gated_activations(
    name: str, policy: Policy, device: str, data: st.DataObject, rows: int, batch: int, width: int
) -> None:
    kernels = Dispatcher(policy)
    ours, definition = {
        "swiglu": (swiglu, swiglu_reference),
        "geglu": (geglu, geglu_reference),
    }[name]
    inputs = drawn(data, device, policy, (rows, batch, width), (rows, batch, width))
    assert_equals_definition(lambda g, u: ours(kernels, g, u), definition, inputs)


@on_devices
@policies
@settings(max_examples=8)
@given(data=st.data(), seq=sizes, batch=st.integers(1, 3), half=st.integers(1, 9), groups=sizes)
def test_rope(
    policy: Policy, device: str, data: st.DataObject, seq: int, batch: int, half: int, groups: int
) -> None:
    kernels, kv_heads = Dispatcher(policy), data.draw(st.integers(1, 2))
    angles = Angles(seq, 2 * half, 100.0)
    shapes = [(seq, batch, heads, 2 * half) for heads in (kv_heads * groups, kv_heads)]
    inputs = drawn(data, device, policy, *shapes)

    def ours(query: Tensor, key: Tensor) -> Tensor:
        turned = apply_rope(kernels, query, key, angles)
        return torch.cat([x.flatten(2) for x in turned], dim=-1)

    def definition(query: Tensor, key: Tensor) -> Tensor:
        return torch.cat([rope_reference(x, 100.0).flatten(2) for x in (query, key)], dim=-1)

    assert_equals_definition(ours, definition, inputs)


@on_devices
@policies
@pytest.mark.parametrize("is_root", [True, False])
@settings(max_examples=6)
@given(data=st.data(), rows=sizes, batch=sizes, width=st.integers(1, 24), vocab=st.integers(2, 70))
def test_linear_cross_entropy(
    is_root: bool,
    policy: Policy,
    device: str,
    data: st.DataObject,
    rows: int,
    batch: int,
    width: int,
    vocab: int,
) -> None:
    """In one chunk and in several; a loss that is no root passes its gradient on."""
    kernels = Dispatcher(policy)
    x, weight = drawn(data, device, policy, (rows, batch, width), (vocab, width))
    tokens = st.lists(st.integers(0, vocab - 1), min_size=rows * batch, max_size=rows * batch)
    targets = torch.tensor(data.draw(tokens), device=device).view(rows, batch)
    most = data.draw(st.sampled_from((words.LARGEST_LOGITS, vocab)))
    multiple = data.draw(st.sampled_from((1, 3)))
    then = 1.0 if is_root else 3.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "LARGEST_LOGITS", most)
        patch.setattr(words, "CHUNK_MULTIPLE", multiple)
        leaves = [t.detach().clone().requires_grad_() for t in (x, weight)]
        loss = linear_cross_entropy(kernels, *leaves, targets, 0.25, is_root)
        (then * loss).backward()
    exact = [t.detach().double().requires_grad_() for t in (x, weight)]
    expected = linear_cross_entropy_reference(*exact, targets, 0.25)
    (then * expected).backward()
    tolerance = {torch.float32: 5e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}[x.dtype]
    assert loss.item() == pytest.approx(expected.item(), rel=tolerance, abs=tolerance)
    for leaf, other in zip(leaves, exact, strict=True):
        assert leaf.grad is not None
        assert other.grad is not None
        largest = max(float(other.grad.abs().max()), 1e-3)
        assert float((leaf.grad.double() - other.grad).abs().max()) <= tolerance * largest


def test_many_chunks_round_the_weight_s_gradient_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """In bf16 it is rounded once a chunk: 16 of them stay within its own unit of the largest."""
    monkeypatch.setattr(words, "LARGEST_LOGITS", 40)
    monkeypatch.setattr(words, "CHUNK_MULTIPLE", 4)
    assert len(words.loss_chunks(64, 40)) == 16
    x, weight = (
        tensor(shape, torch.bfloat16, "cpu", "dense", seed)
        for seed, shape in enumerate(((64, 24), (40, 24)))
    )
    targets = torch.arange(64) % 40
    linear_cross_entropy(Dispatcher("portable"), x, weight, targets, 1 / 64, True).backward()
    exact = [t.detach().double().requires_grad_() for t in (x, weight)]
    linear_cross_entropy_reference(*exact, targets, 1 / 64).backward()
    assert weight.grad is not None
    assert exact[1].grad is not None
    off = (weight.grad.double() - exact[1].grad).abs().max() / exact[1].grad.abs().max()
    assert off < 2**-7


@pytest.mark.parametrize("wanted", [(), ("x",), ("weight",)], ids=["none", "input", "weight"])
def test_gradients_that_nobody_wants_are_not_made(wanted: tuple[str, ...]) -> None:
    shapes = {"x": (6, 8), "weight": (10, 8)}
    x, weight = (
        torch.randn(shape).requires_grad_(name in wanted) for name, shape in shapes.items()
    )
    with Recorder() as recorder:
        loss = linear_cross_entropy(Dispatcher("portable"), x, weight, torch.arange(6), 1.0, True)
    assert sum(kernel.op == "matmul" for kernel in recorder.kernels) == 1 + len(wanted)
    if wanted:
        loss.backward()
    assert [t.grad is not None for t in (x, weight)] == [n in wanted for n in shapes]


def test_gradients_in_place_allow_one_backward_pass() -> None:
    gate, up = (torch.randn(2, 8, requires_grad=True) for _ in range(2))
    out = swiglu(Dispatcher("fused"), gate * 1, up * 1).sum()
    out.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="one backward pass"):
        out.backward()


def test_what_turned_in_place_is_missed_by_who_kept_it() -> None:
    query, key = (torch.randn(3, 1, 2, 4, requires_grad=True) for _ in range(2))
    kept = query * 1
    product = kept * kept
    apply_rope(Dispatcher("fused"), kept, key * 1, Angles(3, 4, 100.0))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


@pytest.mark.parametrize(
    ("version", "says"), [("0.8.4", "older than 0.8.5"), ("0.10.0", None), ("0.8.5+local", None)]
)
def test_a_library_s_age_counts(
    version: str, says: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fused.unusable.cache_clear()
    monkeypatch.setattr(fused.metadata, "version", lambda name: version)
    found = fused.unusable("liger_kernel", "0.8.5")
    assert (found is None) if says is None else says in str(found)
    fused.unusable.cache_clear()


def test_chunks_cover_the_tokens_and_bound_the_logits() -> None:
    for tokens in (1, 255, 2048, 8192, 8193):
        for vocab in (2, 32_000, 128_256, 262_144):
            chunks = words.loss_chunks(tokens, vocab)
            assert sum(chunks) == tokens
            assert max(chunks) * vocab <= max(words.LARGEST_LOGITS, 256 * vocab)
    assert words.loss_chunks(8192, 128_256) == (2048,) * 4


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
@given(
    width=st.sampled_from((2, 8, 4096, 65536, 65538)),
    heads=st.sampled_from((1, 8)),
    dtype=st.sampled_from((torch.float32, torch.bfloat16, torch.float64, torch.int64)),
    policy=st.sampled_from(("auto", "portable")),
)
def test_cores_get_what_runs_everywhere_with_a_reason(
    family: Family, width: int, heads: int, dtype: torch.dtype, policy: Policy
) -> None:
    found = chosen(family, torch.empty((2, 1, heads, width), dtype=dtype), policy)
    assert found.variant is family.variants[-1]
    assert found.passed_over
    assert f"not {found.passed_over[0][0]}: " in explain([found])[0]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
def test_what_the_fused_form_cannot_run_is_refused_in_one_line(family: Family) -> None:
    with pytest.raises(RunError, match=f"no fused {family.name} kernel for float64"):
        chosen(family, torch.empty((2, 1, 4, 8), dtype=torch.float64), "fused")


@pytest.mark.parametrize("family", [RMS_NORM, SWIGLU, GEGLU], ids=lambda f: f.name)
def test_rows_that_no_program_holds_are_refused(family: Family) -> None:
    with pytest.raises(RunError, match="rows of 65537 are wider than 65536"):
        chosen(family, torch.empty(1, 65537), "fused")


def test_cores_get_fused_kernels_for_checks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(2, 8)
    assert chosen(RMS_NORM, x, "auto").variant.name == "eager"
    assert chosen(RMS_NORM, x, "fused").variant.name == "liger"
    assert os.environ["TRITON_INTERPRET"] == "1"
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    with pytest.raises(RunError, match="interpreter is off"):
        chosen(RMS_NORM, x, "fused")


def test_a_dispatcher_remembers_what_it_picked() -> None:
    kernels = Dispatcher()
    x, weight = torch.ones(2, 8), torch.ones(8)
    for _ in range(2):
        rms_norm(kernels, x, weight, 1e-6)
    (only,) = kernels.choices()
    assert only.to_document() == {
        "family": "rms_norm",
        "device": "cpu",
        "dtype": "float32",
        "shape": [2, 8],
        "picked": "eager",
        "passed_over": {"liger": "a core, for which Triton compiles nothing"},
    }
