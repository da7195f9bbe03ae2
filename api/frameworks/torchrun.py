"""torchrun over the nodes of a plan."""

from __future__ import annotations

from .exportable import ExportablePlan


def torchrun_line(plan: ExportablePlan, rest: str) -> str:
    """A torchrun command, to be started on each node."""
    nodes, each = plan.nodes, plan.devices_per_node
    if nodes == 1:
        return f"torchrun --nproc-per-node {each} {rest}"
    where = "--rdzv-backend c10d --rdzv-endpoint HOST:29500"
    return f"torchrun --nnodes {nodes} --nproc-per-node {each} {where} {rest}"
