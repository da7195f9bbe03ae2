"""Which axes plans make use of, so that a check can say what it saw."""

from __future__ import annotations

from collections.abc import Iterator

from shardwright.spec.model.experts import experts_of
from shardwright.spec.plan.plan import Plan


def axes_of(plan: Plan) -> set[str]:
    """What a plan has besides one rank that does everything once."""
    program = plan.program
    used = sum(part.count for stage in program.stages for part in stage.devices)
    found = {f"schedule {program.schedule.kind}", *_strategies(plan)}
    marks = {
        "vpp": program.chunks_per_stage > 1,
        "pp": len(program.stages) > 1,
        "micro-batches": program.schedule.microbatches > 1,
        "micro-batch of several samples": program.schedule.micro_batch > 1,
        "idle devices": used < plan.cluster.device_count,
        "several device groups": len({p.device_group for p in _parts(plan)}) > 1,
        "shared stages": any(len(stage.devices) > 1 for stage in program.stages),
        "several towers": len(plan.models["main"].towers) > 1,
        "experts": any(experts_of(layer) for layer in plan.models["main"].kinds()),
        "strategies that differ": len(set(plan.layer_strategies())) > 1,
    }
    return found | {name for name, is_there in marks.items() if is_there}


def _parts(plan: Plan) -> Iterator[object]:
    return (part for stage in plan.program.stages for part in stage.devices)


def _strategies(plan: Plan) -> Iterator[str]:
    for stage in plan.program.stages:
        ranks = stage.device_count
        for s in {part.strategy for parts in stage.virtual_stages for part in parts}:
            level = s.shard.level_name(s.state_ranks(ranks))
            yield f"shard {level.partition(':')[0]}"
            yield f"recompute {s.recompute}"
            degrees = {"tp": s.tp, "cp": s.cp, "ep": s.ep, "dp": s.data_parallel(ranks)}
            yield from (name for name, degree in degrees.items() if degree > 1)
            if s.etp not in (1, s.tp):
                yield "etp of its own"
            if s.sequence_parallel != "none":
                yield f"sp {s.sequence_parallel}"
