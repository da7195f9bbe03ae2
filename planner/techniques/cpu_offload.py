"""States on the host: tried for every block with granted host memory.

Host memory is available only if granted (``--host-gib``, or ``host_gib`` of a cluster's file).
Then a layer may keep its optimizer's states there, or all its states, weighed against
recomputation, wider sharding and more stages.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...costmodel.techniques.cpu_offload import OPTIMIZERS
from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.techniques.cpu_offload import NAME, CpuOffload
from ..technique import Place, TechniqueChoice

UNGRANTED = "the cluster has no memory of its hosts to use: --host-gib G grants it"


def tried(place: Place) -> Iterable[CpuOffload]:
    """The optimizer's states on the host, then parameters too."""
    if place.workload.optimizer not in OPTIMIZERS:
        return ()
    return (CpuOffload(), CpuOffload(parameters=True))


def cluster_violation(cluster: ClusterSpec) -> str | None:
    """Reason to try nothing on a cluster: no host memory."""
    granted = any(group.memory.host_bytes for group in cluster.groups)
    return None if granted else UNGRANTED


TECHNIQUE = TechniqueChoice(name=NAME, tried=tried, cluster_violation=cluster_violation)
