"""Dates, prices and numbers of devices as people type them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ...datasets.catalogue.device import device
from ...spec.errors import InputError
from ..problem.price_file import PRICES_FLAG, PricesLike

WITHIN = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)\s*([hdw])", re.IGNORECASE | re.ASCII)
SECONDS = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
PRICE = re.compile(r"([^=]{1,64})=(\d{1,9}(?:\.\d{1,9})?)\s*([A-Za-z]{3})?", re.ASCII)
CURRENCY = "USD"
LEAST, MOST = 8, 16_384
"""Devices of the curve's ends."""


def within_seconds(text: str | float | None) -> float | None:
    """Seconds of ``30d``, ``720h`` or ``4w``; a number is days.

    Raises:
        InputError: another text, or nothing above 0.
    """
    if text is None:
        return None
    typed = f"{text}d" if isinstance(text, (int, float)) else text.strip()
    found = WITHIN.fullmatch(typed)
    if found is None or float(found.group(1)) <= 0:
        raise InputError("--within", text, "a time above 0 in h, d or w", "30d")
    return float(found.group(1)) * SECONDS[found.group(2).casefold()]


def typed_prices(prices: PricesLike | None) -> PricesLike | None:
    """Prices, of ``DEVICE=2.5`` or ``DEVICE=2.5EUR`` as a document.

    Raises:
        InputError: no such device.
    """
    if not isinstance(prices, str) or Path(prices).expanduser().exists():
        return prices
    found = PRICE.fullmatch(prices.strip())
    if found is None:
        if "=" in prices:
            near = "H100-80GB=2.5"
            raise InputError(PRICES_FLAG, prices, "DEVICE=PRICE of a device-hour, or a file", near)
        return prices
    document: dict[str, Any] = {
        "currency": (found.group(3) or CURRENCY).upper(),
        "device_hour": {device(found.group(1)).name: float(found.group(2))},
    }
    return document


def device_counts(least: int = LEAST, most: int = MOST) -> list[int]:
    """Powers of two between the ends.

    Raises:
        InputError: ends in the wrong order.
    """
    if not 1 <= least <= most:
        raise InputError("--devices", f"{least}-{most}", "numbers from 1 on, the smaller first")
    counts, count = [], 1
    while count <= most:
        if count >= least:
            counts.append(count)
        count *= 2
    return counts
