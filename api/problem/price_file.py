"""Rental prices from a YAML or JSON file.

    currency: USD
    device_hour:                # of one device; a catalogue device, or a device group's name
      H100-SXM-80GB: 2.49
      A100-80GB: 1.29
    node_hour:                  # of a node beside its devices; left out: nothing
      H100-SXM-80GB: 0.80

A device group without a price is an error; prices of devices that the cluster lacks are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...datasets.catalogue.device import device, devices
from ...datasets.catalogue.documents import read_document
from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.errors import InputError, nearest_name
from ...spec.finite_numbers import refuse_non_finite
from ...spec.inputs.typed_keys import TypedKeys
from ...spec.plan.rental_prices import RentalPrices
from ...spec.report.report import Assumption

PRICES_FLAG = "--prices"
KEYS = ("currency", "device_hour", "node_hour")
MAX_CURRENCY_LENGTH = 16
PRICE_FILE_TEXT = "a price file: currency and device_hour, with a price for each device type"
PricesLike = str | Path | Mapping[str, Any] | RentalPrices


def prices_of(prices: PricesLike | None, cluster: ClusterSpec) -> RentalPrices | None:
    """Resolve prices; None if there are none.

    Args:
        prices: a file's path, its content, or RentalPrices.
        cluster: each of its device groups must have a price.

    Raises:
        InputError: no usable file, an unknown key or device, no price of a device group.
    """
    if prices is None:
        return None
    if isinstance(prices, RentalPrices):
        return _require_all_priced(prices, cluster, PRICES_FLAG)
    if isinstance(prices, (str, Path)):
        path = Path(prices).expanduser()
        return _prices_from_keys(read_document(path, PRICE_FILE_TEXT), cluster, str(prices))
    if not isinstance(prices, Mapping):
        raise InputError(PRICES_FLAG, type(prices).__name__, "a path, a mapping or Prices")
    refuse_non_finite(prices, PRICES_FLAG)
    return _prices_from_keys(prices, cluster, PRICES_FLAG)


def price_notes(prices: RentalPrices | None, cluster: ClusterSpec) -> list[Assumption]:
    """Assumptions on the prices of a cluster."""
    if prices is None:
        return []
    notes = []
    for group in cluster.groups:
        hours = 3600 * prices.device_per_s(group), 3600 * prices.node_per_s(group)
        value = f"{hours[0]:.6g} {prices.currency}"
        value += f", {hours[1]:.6g} {prices.currency} a node-hour" if hours[1] else ""
        why = f"a device-hour of {group.device}, as --prices says; idle devices cost nothing"
        notes.append(Assumption(path=f"prices.{group.name}", value=value, why=why))
    return notes


def _prices_from_keys(
    document: Mapping[str, Any], cluster: ClusterSpec, where: str
) -> RentalPrices:
    keys = TypedKeys(document, where)
    keys.refuse_unknown(KEYS)
    keys.require(("currency", "device_hour"))
    currency = keys.text("currency")
    if len(currency) > MAX_CURRENCY_LENGTH or not currency.isprintable():
        raise keys.error("currency", f"a name of at most {MAX_CURRENCY_LENGTH} characters", "USD")
    prices = RentalPrices(
        currency=currency,
        device_hour=_hours(keys, "device_hour", cluster, free=False),
        node_hour=_hours(keys, "node_hour", cluster, free=True),
    )
    return _require_all_priced(prices, cluster, where)


def _hours(keys: TypedKeys, key: str, cluster: ClusterSpec, free: bool) -> dict[str, float]:
    """Prices by device group or catalogue device; ``free`` allows 0."""
    if not keys.has(key):
        return {}
    rows = keys.document[key]
    if not isinstance(rows, Mapping) or not rows:
        names = ", ".join(dict.fromkeys(group.device for group in cluster.groups))
        raise keys.error(key, "a price for each device type", f"{key}: {{{names}: 2.5}}")
    typed = TypedKeys({str(name): value for name, value in rows.items()}, f"{keys.where}: {key}")
    hours: dict[str, float] = {}
    for name in typed.document:
        priced = _priced_name(name, cluster, typed.where)
        if priced in hours:
            raise InputError(typed.where, name, f"one price for {priced}", priced)
        hours[priced] = typed.number(name, exclusive=not free)
    return hours


def _priced_name(name: str, cluster: ClusterSpec, where: str) -> str:
    """Device group's own name, else the catalogue name of a device."""
    groups = [group.name for group in cluster.groups]
    if name in groups:
        return name
    try:
        return device(name).name
    except InputError as error:
        near = nearest_name(name, [*groups, *devices()]) or error.nearest
        allowed = "a device of the catalogue (plan clusters), or a device group: "
        raise InputError(where, name, allowed + ", ".join(groups), near) from None


def _require_all_priced(prices: RentalPrices, cluster: ClusterSpec, where: str) -> RentalPrices:
    group = prices.unpriced(cluster)
    if group is not None:
        allowed = f"a price of {group.device}, of which the cluster has {group.device_count}"
        near = f"{group.device}: 2.5"
        raise InputError(f"{where}: device_hour", ", ".join(prices.device_hour), allowed, near)
    return prices
