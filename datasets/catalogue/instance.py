"""Instances of clouds: how many devices of which kind, and the network between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from .tables import read_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A cloud's instance, which is one node of a cluster.

    ``device`` and ``network`` are names of the catalogue; None where the cloud prints no network,
    so that it is the usual one of the devices' node.
    """

    name: str
    cloud: str
    devices: int
    device: str
    network: str | None
    source: str

    @property
    def text(self) -> str:
        """The text of a cluster of one, such as ``1x8xA100-SXM-80GB@4x100G-EFA``."""
        network = f"@{self.network}" if self.network is not None else ""
        return f"1x{self.devices}x{self.device}{network}"


@cache
def instances() -> Mapping[str, Instance]:
    """Every instance by name, in the table's order."""
    return {
        name: _instance(name, figures, cloud)
        for cloud in read_table("instances").values()
        for name, figures in cloud["instances"].items()
    }


def _instance(name: str, figures: list[str], cloud: Mapping[str, Any]) -> Instance:
    devices, network, source = (*figures, None, None)[:3]
    count, _, device = str(devices).partition("x")
    return Instance(
        name=name,
        cloud=cloud["cloud"],
        devices=int(count),
        device=device,
        network=network,
        source=source or cloud["source"],
    )


@cache
def _spellings() -> Mapping[str, str]:
    table: dict[str, str] = {}
    for cloud in read_table("instances").values():
        for name in cloud["instances"]:
            for prefix in ("", *cloud["prefixes"]):
                table[f"{prefix}{name}".casefold()] = name
    return table


def instance(name: str) -> Instance | None:
    """The instance called ``name``, upper and lower case alike; None if there is none.

    Prefixes of the cloud's tools may stand before it: ``Standard_ND96isr_H100_v5``,
    ``ml.p4d.24xlarge``.
    """
    known = _spellings().get(name.casefold())
    return None if known is None else instances()[known]
