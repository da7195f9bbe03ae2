"""The smoke stage names wrong kernels in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from gpu import smoke_kernels
from gpu.child import make_setting
from gpu.smoke_checks import CHECKS
from gpu.smoke_kernels import KERNEL_CHECKS
from gpu.stages import smoke

from shardwright.kernels.quantization.block_format import Quantized

CORE = torch.device("cpu")


@pytest.mark.parametrize("name", list(KERNEL_CHECKS))
def test_kernels_agree_with_their_definitions(name: str) -> None:
    assert KERNEL_CHECKS[name](CORE).startswith("picked ")


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("a ring of two blocks", "flash_attention_with_lse"),
        ("a ring of two blocks", "flash_attention_backward_block"),
        ("varlen_attention", "varlen_attention"),
        ("block_masked_attention", "block_masked_attention"),
        ("grouped_matmul", "grouped_matmul"),
        ("permute", "permute"),
        ("unpermute", "unpermute"),
        ("gather_token_ranges", "gather_token_ranges"),
        ("scatter_token_ranges", "scatter_token_ranges"),
    ],
)
def test_a_wrong_kernel_is_a_row_that_says_so(
    name: str, function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = getattr(smoke_kernels, function)

    def wrong(*operands: Any, **options: Any) -> Any:
        found = right(*operands, **options)
        return (found[0] * 1.01, *found[1:]) if isinstance(found, tuple) else found * 1.01

    monkeypatch.setattr(smoke_kernels, function, wrong)
    rows = {row.key: row for row in smoke.rows(make_setting(tmp_path, reduced=True))}
    found = rows[name].run()
    assert not found["works"]
    assert found["said"].startswith("ValueError: off by ")


def test_levels_that_differ_in_one_bit_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = smoke_kernels.quantize

    def wrong(kernels: Any, x: Any, form: Any, philox: Any) -> Quantized:
        packed, scales = right(kernels, x, form, philox)
        if kernels.policy == "portable":
            packed[3, 7] ^= 1
        return Quantized(packed, scales)

    monkeypatch.setattr(smoke_kernels, "quantize", wrong)
    with pytest.raises(ValueError, match=r"^8 bits: 1 of \d+ levels differ$"):
        KERNEL_CHECKS["quantize, rounded by chance"](CORE)


def test_both_claims_need_every_check() -> None:
    names, kernels = (claim.judge for claim in smoke.STAGE.claims)
    works = {key: {"works": True} for key in [*CHECKS, smoke.OURS, *KERNEL_CHECKS]}
    for judge, key in ((names, "FSDP2"), (kernels, "permute")):
        verdict = judge(works)
        assert not isinstance(verdict, str)
        assert verdict.met
        missing = judge({k: row for k, row in works.items() if k != key})
        assert isinstance(missing, str)
        assert missing.endswith("the others were not tried")
        broken = judge({**works, key: {"works": False}})
        assert not isinstance(broken, str)
        assert not broken.met
        assert broken.figure.endswith(f"; not {key}")
