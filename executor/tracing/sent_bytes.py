"""What each rank sent over each link level in a step."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from ...spec.report.sent_bytes import sent_bytes
from ...spec.report.work_items import Collective
from ..engine.engine import Engine
from ..launch.consistency import gather_json
from .recorder import collective_of
from .step_memory import StepMemory, by_stage, follow_step


class SentBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes collectives and messages inside its context, and nothing else."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.collectives: list[Collective] = []

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Keep compiled layers compiled while recording."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation; note it if it communicates."""
        out = func(*args, **(kwargs or {}))
        namespace, _, rest = str(func).partition(".")
        if namespace == "c10d":
            name = rest.split(".")[0]
            item = collective_of(name, args)
            if item is not None and not (item.kind == "send_recv" and name != "send"):
                self.collectives.append(item)
        return out

    def by_level(self, engine: Engine) -> list[dict[str, int]]:
        """Bytes by link level of every rank; collective. Empty with several device groups."""
        plan, process_groups = engine.plan, engine.process_groups
        if len(plan.cluster.groups) > 1:
            return []
        stage = plan.program.stages[process_groups.stage]
        sent = sent_bytes(self.collectives, plan.cluster, stage, process_groups.local_rank)
        found: list[dict[str, int]] = gather_json(sent, engine.options.device)
        return found


def follow_bytes(engine: Engine, snapshot: bool) -> tuple[StepMemory, dict[str, list[Any]]]:
    """Run one more step; this rank's memory in it, and all ranks' peaks and bytes sent.

    ``snapshot`` keeps every allocation, not only the peak.
    """
    with SentBytes() as sent:
        memory = follow_step(engine, snapshot)
    return memory, {**by_stage(engine, memory), "sent_bytes": sent.by_level(engine)}
