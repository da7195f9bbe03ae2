"""Activations on the host: both ends of the family are tried for every block with granted memory.

Between them the number is refined on the plans that a search found: the share that hides beside
the computation and fits the hosts.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...spec.techniques.activation_swap import FAMILY, NAME, ActivationSwap
from ..technique import Place, TechniqueChoice
from .cpu_offload import cluster_violation


def tried(place: Place) -> Iterable[ActivationSwap]:
    """Nothing but what always goes, and everything."""
    ends: tuple[ActivationSwap, ...] = FAMILY.ends
    return ends


TECHNIQUE = TechniqueChoice(name=NAME, tried=tried, cluster_violation=cluster_violation)
