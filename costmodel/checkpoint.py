"""Price of saving and loading a run's checkpoint.

ByteCheckpoint (NSDI 2025, sections 4 and 5) in formulas, with B the unique bytes of all ranks, b
those that the fullest rank writes, n the bytes that a rank needs, S the storage, shared by all:

stall       copy(b): a step waits only for a copy in host memory
end to end  stall + max(S_write(B), digest(b) + S_write(b)): the storage is one server, and a rank
            digests a piece while others write
load        max(S_read(B), digest(B / ranks) + S_read(B / ranks)) + exchange(n): every byte is read
            once, by one rank, and passed on

Replicated pieces are shared out evenly among the ranks of a stage, so b is the stage's bytes over
its ranks. Takeaway: what is saved does not depend on replicas, what a rank needs does. Example: 8
billion parameters with AdamW in fp32 are 96 GB: on 8 ranks 12 GB each; at 2 GB/s the storage takes
48 s, whatever the plan. Limits: no other traffic beside it, one storage for all nodes, no
planning of the first save.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ..spec.model.layer_parameters import ParameterSpec
from ..spec.model.towers import layer_contexts, shared_tables
from ..spec.parallel.rank_groups import expert_shard_group
from ..spec.plan.plan import LayerPlan, Plan
from ..spec.plan.relative_position_bias import TABLE, table_blocks
from ..spec.report.checkpoint_price import CheckpointPrice
from ..spec.report.work_items import (
    FROM_DRIVE,
    HOST_PREFIX,
    TO_DRIVE,
    TO_HOST,
    Collective,
    Kernel,
)
from ..spec.strategy import LayerStrategy
from ..spec.workload.number_formats import DTYPE_BYTES
from ..spec.workload.training import is_adapter, parameters_with_adapters
from .pricing.host_rates import checkpoint_curves, drive_price, host_price
from .pricing.machine import Machine
from .pricing.pricer import Pricer
from .sharding.optimizers import MOMENTS

DIGEST_BYTES_PER_S = 5e9
"""XXH3 and the check for finite values, at the speed of one core's memory. Assumed; ``plan profile
--checkpoint`` measures it.
"""
SHARED_TABLES = ("tokens.weight", "projection.weight")
MEASURED, ANALYTIC = "measured", "analytic"


@dataclass(frozen=True, slots=True)
class SavedStage:
    """Bytes of a stage's weights and moments.

    ``unique``: each once; ``local``: on one rank, replicas included.
    """

    unique: int
    local: float
    ranks: int


def stage_bytes(plan: Plan) -> list[SavedStage]:
    """Bytes of every stage that a checkpoint holds."""
    seen: set[tuple[int, str]] = set()
    rows = []
    for stage in plan.program.stages:
        unique, local = 0, 0.0
        for index, strategy in _layers(plan, stage.virtual_stages):
            for spec, size_bytes in _parameters(plan, index):
                place = _owner(plan, index, spec)
                unique += 0 if place in seen else size_bytes
                seen.add(place)
                local += size_bytes / _parts(spec, strategy, stage.device_count)
        rows.append(SavedStage(unique, local, stage.device_count))
    return rows


def price_checkpoint(plan: Plan, pricer: Pricer) -> CheckpointPrice:
    """Seconds and bytes of a checkpoint of a plan's run."""
    machine, stages = pricer.machine, stage_bytes(plan)
    total, ranks = sum(row.unique for row in stages), sum(row.ranks for row in stages)
    largest = max(math.ceil(row.unique / row.ranks) for row in stages)
    storage = StorageRates(machine)
    stall_s = storage.copy_s(largest)
    written_s = max(storage.write_s(total), storage.digest_s(largest) + storage.write_s(largest))
    share = math.ceil(total / ranks)
    read_s = max(storage.read_s(total), storage.digest_s(share) + storage.read_s(share))
    needed = math.ceil(max(row.local for row in stages))
    return CheckpointPrice(
        stall_s=stall_s,
        end_to_end_s=stall_s + written_s,
        load_s=read_s + _exchange_s(pricer, ranks, max(0, needed - needed // ranks)),
        bytes=total,
        rank_bytes=largest,
        largest_over_mean=largest * ranks / total if total else 1.0,
        source=storage.source,
    )


def _layers(
    plan: Plan, chunks: tuple[tuple[LayerPlan, ...], ...]
) -> Iterator[tuple[int, LayerStrategy]]:
    for parts in chunks:
        for index, _, strategy in plan.chunk_layers(parts):
            yield index, strategy


def _parameters(plan: Plan, index: int) -> Iterator[tuple[ParameterSpec, int]]:
    """Parameters of a layer, with bytes of weights and moments."""
    workload, layer = plan.workload, plan.model.layers()[index]
    training = workload.layer_trainings(plan.model)[index]
    tokens = layer_contexts(plan.model, workload.seq_len)[index].tokens
    master = DTYPE_BYTES[workload.dtype.master]
    moments = MOMENTS.get(workload.optimizer, 1) * DTYPE_BYTES[workload.dtype.moments]
    for spec in parameters_with_adapters(layer, tokens, training):
        trained = training.weights or is_adapter(spec)
        yield spec, math.prod(spec.shape) * (master + (moments if trained else 0))


def _owner(plan: Plan, index: int, spec: ParameterSpec) -> tuple[int, str]:
    """Layer and name under which a parameter is saved; shared ones have one."""
    if spec.name == TABLE:
        return table_blocks(plan.model).get(index, index), spec.name
    shared = shared_tables(plan.model)
    if spec.name in SHARED_TABLES and index in shared:
        return shared[0], SHARED_TABLES[0]
    return index, spec.name


def _parts(spec: ParameterSpec, strategy: LayerStrategy, ranks: int) -> int:
    """Parts of a parameter that ranks hold apart."""
    if spec.expert:
        shards = expert_shard_group(strategy, ranks).size
        return strategy.ep * strategy.etp * shards
    split = strategy.weight_split if spec.split_dim is not None else 1
    return split * strategy.shard.optimizer


def _exchange_s(pricer: Pricer, ranks: int, received_bytes: int) -> float:
    """Seconds in which every rank receives its part of what others read."""
    if ranks == 1 or not received_bytes:
        return 0.0
    return pricer.collective(Collective("all_to_all", ranks, 1, received_bytes, "bf16")).time_s


class StorageRates:
    """Seconds of copies, digests, writes and reads of a machine's checkpoints.

    Measured by ``plan profile --checkpoint``, all ranks at once; else by the catalogue: one drive
    of a node, and the link to the host.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._curves = checkpoint_curves(machine.profile)

    @property
    def source(self) -> str:
        """``measured``, or ``analytic`` without a profile of a folder."""
        return MEASURED if "checkpoint_write" in self._curves else ANALYTIC

    def copy_s(self, size_bytes: int) -> float:
        """A rank's copy to host memory."""
        op = f"{HOST_PREFIX}copy" if self._machine.is_cpu else TO_HOST
        listed = Kernel(op, (size_bytes,), "fp32", 0, 2 * size_bytes)
        return self._at("checkpoint_copy", size_bytes, host_price(listed, self._machine, {}).time_s)

    def digest_s(self, size_bytes: int) -> float:
        """Digests of a rank's bytes."""
        return self._at("checkpoint_digest", size_bytes, size_bytes / DIGEST_BYTES_PER_S)

    def write_s(self, size_bytes: int) -> float:
        """Writing by all ranks together."""
        return self._at("checkpoint_write", size_bytes, self._drive_s(TO_DRIVE, size_bytes))

    def read_s(self, size_bytes: int) -> float:
        """Reading by all ranks together."""
        return self._at("checkpoint_read", size_bytes, self._drive_s(FROM_DRIVE, size_bytes))

    def _drive_s(self, op: str, size_bytes: int) -> float:
        """Seconds of a node's drive, which one stands for any number of nodes."""
        devices = self._machine.cluster.groups[0].devices_per_node
        listed = Kernel(op, (size_bytes,), "fp32", 0, 2 * size_bytes // devices)
        return drive_price(listed, self._machine, {}).time_s

    def _at(self, kind: str, size_bytes: int, listed_s: float) -> float:
        curve = self._curves.get(kind)
        return listed_s if curve is None else curve.at(size_bytes)
