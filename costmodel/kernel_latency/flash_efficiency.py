"""Rate of flash attention as a fraction of the products' rate.

A causal kernel computes whole tiles on the diagonal, half of them masked, and its last wave is
seldom full; both cost as a longer sequence would. So of ``n`` tokens (of the window, where one is
shorter)

    rate = products' rate · c · n / (n + n_half)

with one ``n_half`` for all devices and a ``c`` for each family. Both were fitted to forward kernels
of 512 to 16,384 tokens and head width 128 that fill the device (batch x heads >= 64), in the
prefill table of aiconfigurator-core 0.12.0: mean error 4 % on A100, 8 to 9 % on Hopper, 12 to 15 %
on Blackwell and on cards; one ceiling for all lengths was 17 to 43 % off.

Worked number: A100, bf16, 4,096 tokens: 312 · 0.869 · 0.574 · 4096 / 4796 = 133 TFLOP/s.

For unmeasured families and full masks, c is 0.75 (Dao, FlashAttention-2, 2023, figures 4 to 6: 190
to 230 TFLOP/s on A100). The backward reaches 0.8 of the forward's rate (the same figures: 170 to
195).

FlashAttention-2 (generation 2), written for Ampere, reaches 1/1.75 of that rate on Hopper, where
kernels written for it are 1.5 to 2.0 times as fast (Shah et al., FlashAttention-3,
arXiv:2407.08608, abstract). Limits: on Blackwell every stack is priced as if its kernels were
written for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...datasets.catalogue.device import Device
from ...spec.report.work_items import FLASH_BACKWARDS, FLASH_BAND, FLASH_FORWARDS, FLASH_FULL

HALF_TOKENS = 700
"""Tokens at which a causal kernel reaches half of its rate at the longest."""
CAUSAL: Mapping[str, float] = {
    "A100": 0.574,
    "A800": 0.574,
    "H100": 0.784,
    "H800": 0.784,
    "H200": 0.773,
    "B200": 0.717,
    "GB200": 0.718,
    "GB300": 0.819,
    "L40S": 1.017,
    "RTX-PRO-6000": 0.942,
}
"""By device family; A800 and H800 are the chips of A100 and H100 with other links."""
HOPPER = ("H100", "H800", "H20", "H200")
SECOND_ON_HOPPER = 1 / 1.75
"""Rate of FlashAttention-2 on Hopper over that of kernels written for it."""
UNMEASURED = 0.75
BACKWARD = 0.8
MEASURED = "forward kernels of the prefill table of aiconfigurator-core 0.12.0"
PRINTED = "Dao, FlashAttention-2, 2023, figures 4 to 6"
PRINTED_3 = "Shah et al., FlashAttention-3, 2024, abstract: 1.5 to 2.0 times as fast on H100"


def flash_share(op: str, shape: tuple[int, ...], device: Device, generation: int = 3) -> float:
    """A flash kernel's fraction of the products' rate.

    ``op``: one of :data:`work_items.ATTENTIONS`; ``generation``: see :class:`stack_spec.StackSpec`.
    A single core has no tiles to fill.
    """
    forward = op if op in FLASH_FORWARDS else FLASH_FORWARDS[FLASH_BACKWARDS.index(op)]
    factor = 1.0 if op == forward else BACKWARD
    if generation == 2 and device.family in HOPPER:
        factor *= SECOND_ON_HOPPER
    if forward == FLASH_FULL or device.sm_count == 1:
        return UNMEASURED * factor
    tokens = shape[3] if forward != FLASH_BAND else min(shape[4], shape[7])
    return CAUSAL.get(device.family, UNMEASURED) * factor * tokens / (tokens + HALF_TOKENS)
