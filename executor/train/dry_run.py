"""Dry run of a rank's steps, without data, device or peers.

``python -m shardwright.executor.train.dry_run < PLAN.json`` builds one rank of every stage as a run
does, with a fake process group and tensors without contents, and takes two steps. The second one's
collectives and live bytes are a run's: only experts' sizes depend on values, and their load is even
here. Any model and rank count take seconds: one rank has only its shards.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from ...kernels.attention.rope import forget_tables as forget_angles
from ...spec.errors import ShardwrightError
from ...spec.model.experts import experts_of
from ...spec.plan.plan import Plan, load_plan
from ...spec.plan.relative_position_bias import table_blocks
from ...spec.program_values import address_technique
from ...spec.report.work_items import Collective
from ..data.tasks import plan_task
from ..engine.engine import Engine
from ..groups.process_groups import ProcessGroups
from ..groups.rank_layout import plan_world_size, stage_layout
from ..models.moe.order import clear_row_numbers
from ..stage.options import BuildOptions
from ..technique import RunTechniques, TechniqueRun
from ..techniques import SHIPPED
from ..tracing.recorder import LiveBytes, Recorder

TIMEOUT_S = 60.0
HOST = torch.device("cpu")


def dry_run(plan: Plan, flash: bool = True, techniques: RunTechniques = SHIPPED) -> list[Any]:
    """Dry-run a step on the first rank of each distinct stage.

    ``flash``: the flash kernel where no score biases are learned.

    Returns:
        For each kind of stage ``{stages, rank, resident_bytes, peak_bytes, host_bytes, collectives:
        [{kind, ranks, stride, payload_bytes, dtype, copies, count}]}``, JSON-ready. A message's
        ``stride`` is the distance to its peer. The rank is of the kind's first stage, which has the
        most micro-batches in flight.
    """
    flash = flash and not table_blocks(plan.model)  # learned biases
    if (technique := address_technique(techniques.values)) is not None:  # no tensor has an address
        techniques = techniques.with_run(TechniqueRun(name=technique.name))
    options = BuildOptions(seed=0, device=HOST, flash=flash, prefetch=False, techniques=techniques)
    return [_dry_run_stages(plan, stages, options) for stages in _identical_stages(plan)]


def _identical_stages(plan: Plan) -> list[list[int]]:
    """Stage numbers, grouped by equal layers, strategies and messages."""
    groups: dict[object, list[int]] = {}
    last = len(plan.program.stages) - 1
    for number, stage in enumerate(plan.program.stages):
        layers = tuple(
            (layer, strategy)
            for parts in stage.virtual_stages
            for _, layer, strategy in plan.chunk_layers(parts)
        )
        width = stage.device_count
        beside = [
            plan.program.stages[n].device_count for n in (number - 1, number + 1) if 0 <= n <= last
        ]
        groups.setdefault((layers, width, *beside), []).append(number)
    return list(groups.values())


def _dry_run_stages(plan: Plan, stages: list[int], options: BuildOptions) -> dict[str, Any]:
    short, longer = _shortened(plan)
    seen = _step(short, stages[0], options)
    counts = Counter(seen.collectives)
    if longer is not None:
        more = Counter(_step(longer, stages[0], options).collectives)
        between = longer.program.schedule.microbatches - short.program.schedule.microbatches
        left = plan.program.schedule.microbatches - short.program.schedule.microbatches
        counts = Counter({c: n + (more[c] - n) * left // between for c, n in counts.items()})
    rank = stage_layout(plan)[stages[0]][0]
    sizes = {
        "resident_bytes": seen.resident_bytes,
        "peak_bytes": seen.peak_bytes,
        "host_bytes": seen.host_bytes,
    }
    return {"stages": stages, "rank": rank, **sizes, "collectives": _listed(counts)}


def _shortened(plan: Plan) -> tuple[Plan, Plan | None]:
    """The plan with just enough micro-batches to fill the pipeline, and more.

    A step's work is affine in the number of micro-batches.
    """
    schedule, stages = plan.program.schedule, len(plan.program.stages)
    enough = 2 * stages * plan.program.chunks_per_stage
    if schedule.microbatches <= enough + stages:
        return plan, None
    return plan.with_microbatches(enough), plan.with_microbatches(enough + stages)


class _DryStep(NamedTuple):
    """A step of one rank."""

    resident_bytes: int
    peak_bytes: int
    host_bytes: int
    collectives: list[Collective]


def _step(plan: Plan, stage: int, options: BuildOptions) -> _DryStep:
    with stepped_engine(plan, stage, options) as engine:
        live = LiveBytes(engine.resident_tensors(), pauses=False)
        with live, live.following_resizes(), Recorder() as seen:
            resident = live.live_bytes
            engine.dry_run_step()
        return _DryStep(resident, live.peak_bytes, live.host_peak_bytes, seen.collectives)


@contextmanager
def stepped_engine(plan: Plan, stage: int, options: BuildOptions) -> Iterator[Engine]:
    """The engine of a stage's first rank without contents, after one step.

    That step makes the optimizer's state, and what libraries cache.
    """
    rank = stage_layout(plan)[stage][0]
    with alone_in_world(rank, plan_world_size(plan)):
        process_groups = ProcessGroups(plan, rank, HOST.type, TIMEOUT_S, options.techniques.values)
        _make_meshes(plan, stage, process_groups)
        _forget_tables()  # of tensors with contents
        with FakeTensorMode():
            engine = Engine(plan, rank, options, _records(plan), process_groups=process_groups)
            engine.dry_run_step()
            yield engine
            _forget_tables()


def _make_meshes(plan: Plan, stage: int, process_groups: ProcessGroups) -> None:
    for strategy in plan.stage_strategies(stage):
        process_groups.data_mesh(strategy)
    for parts in plan.program.stages[stage].virtual_stages:
        for _, layer, strategy in plan.chunk_layers(parts):
            if strategy.shard.secondary_parameters > 1:
                process_groups.secondary_mesh(strategy)
            if experts_of(layer) is not None:
                process_groups.expert_mesh(strategy)
                process_groups.expert_secondary_mesh(strategy)


def _forget_tables() -> None:
    forget_angles()
    clear_row_numbers()


@contextmanager
def alone_in_world(rank: int, ranks: int) -> Iterator[None]:
    """A fake world of ``ranks`` ranks without communication."""
    from torch.testing._internal.distributed.fake_pg import FakeStore  # brings the backend "fake"

    dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


def _records(plan: Plan) -> Callable[[int, int], Tensor]:
    numbers = plan_task(plan).record
    return lambda step, sample: torch.empty(numbers, dtype=torch.int64)


def _listed(counts: Counter[Collective]) -> list[dict[str, Any]]:
    names = Collective._fields
    rows = [
        {**dict(zip(names, collective, strict=True)), "count": count}
        for collective, count in counts.items()
    ]
    return sorted(rows, key=lambda row: (-row["payload_bytes"] * row["count"], str(row)))


def main() -> int:
    """Read a plan, print its ranks' dry run; return the exit code."""
    try:
        plan = load_plan(sys.stdin.read(), "PLAN.json")
        json.dump(dry_run(plan), sys.stdout, allow_nan=False)
    except ShardwrightError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
