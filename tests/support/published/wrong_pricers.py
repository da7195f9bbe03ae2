"""Pricers that are wrong on purpose: nothing costs anything, or some of it costs more."""

from __future__ import annotations

from typing import Any

from shardwright.costmodel.kernel_latency.profile_table import Latency
from shardwright.costmodel.pricing.pricer import Pricer
from shardwright.datasets.catalogue.links import LinkRates
from shardwright.spec.report.work_items import Collective, Kernel


class Free(Pricer):
    """Messages, collectives and updates cost nothing."""

    def collective(self, item: Collective) -> Latency:
        return Latency(0.0, "analytic")

    def message(self, size_bytes: int, level: LinkRates) -> float:
        return 0.0

    def kernel(self, kernel: Kernel) -> Latency:
        return Latency(0.0, "analytic")


class Perturbed(Pricer):
    """Some prices are higher than they are."""

    def __init__(self, pricer: Pricer, factor: float, hits: Any) -> None:
        super().__init__(pricer.machine, pricer.stack)
        self._factor, self._hits = factor, hits

    def with_link_span(self, link_span: int) -> Pricer:
        return Perturbed(super().with_link_span(link_span), self._factor, self._hits)

    def kernel(self, kernel: Kernel) -> Latency:
        price = super().kernel(kernel)
        return Latency(price.time_s * self._factor, price.source) if self._hits(kernel) else price

    def collective(self, item: Collective) -> Latency:
        price = super().collective(item)
        return Latency(price.time_s * self._factor, price.source) if self._hits(item) else price
