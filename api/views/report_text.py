"""Lines of text of a report, for terminal and notebook."""

from __future__ import annotations

from collections.abc import Sequence

from ...costmodel.memory.feasibility import MemoryRule
from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.plan.plan import Plan
from ...spec.plan.shape_text import shape_text as shape_text
from ...spec.report.checkpoint_price import CheckpointPrice
from ...spec.report.report import MemoryRow, Prediction, Report
from ...spec.units import GIB, format_bytes, format_count, format_number, format_seconds
from ...spec.workload.document_lengths import lengths_text
from ...spec.workload.expert_load import load_text
from ...spec.workload.workload import Workload

ROUNDING = 1e-9
"""Terms below this part of the step are left out."""
MFU_NOTE = "full attention"
"""Convention of every MFU shown: masked scores count."""
MIN_MFU_DIFFERENCE = 0.02
"""MFU with causal attention halved is shown where it is lower by more."""


def terms(prediction: Prediction) -> list[tuple[str, float, float]]:
    """List name, seconds and fraction of non-zero terms, largest first."""
    step_s = prediction.step_time_s
    named = [
        (name.replace("_", " "), seconds, seconds / step_s)
        for name, seconds in prediction.breakdown_s.items()
        if seconds > ROUNDING * step_s
    ]
    return sorted(named, key=lambda term: (-term[1], term[0]))


def checkpoint_text(price: CheckpointPrice) -> str:
    """Stall, writing, loading and bytes of a checkpoint."""
    return (
        f"a step waits {format_seconds(price.stall_s)}, written after "
        f"{format_seconds(price.end_to_end_s)}, loaded in {format_seconds(price.load_s)}; "
        f"{format_bytes(price.bytes)}, at most {format_bytes(price.rank_bytes)} a rank "
        f"({price.largest_over_mean:.2f} x the mean), rates {price.source}"
    )


def memory_text(row: MemoryRow) -> str:
    """Format ``76.6 of 79.2 GiB``; MiB on devices below one GiB."""
    whole = row.capacity_bytes or row.reserved_bytes  # a tier that there is not has none
    unit, name = (GIB, "GiB") if whole >= GIB else (2**20, "MiB")
    return f"{row.reserved_bytes / unit:.3g} of {row.capacity_bytes / unit:.3g} {name}"


def peak_memory_row(prediction: Prediction) -> MemoryRow:
    """Find the row with the highest fraction in use, first on ties."""
    return max(prediction.memory, key=lambda row: row.reserved_bytes / max(1, row.capacity_bytes))


def trained_text(workload: Workload) -> str:
    """Format the trainable parts, unless everything is trained."""
    if workload.adapters is not None:
        return f", lora of rank {workload.adapters.rank}"
    return f", {', '.join(workload.frozen)} frozen" if workload.frozen else ""


def question_text(plan: Plan) -> str:
    """The model and the workload in one line."""
    workload, model = plan.workload, plan.model
    total, active = (
        count(workload.seq_len) for count in (model.param_count, model.active_param_count)
    )
    parameters = f"{format_count(total)} parameters"
    if active != total:
        parameters += f", {format_count(active)} active"
    size = f"{workload.global_batch} x {workload.seq_len} tokens a step"
    how = f"{workload.dtype.text}, {workload.optimizer}{trained_text(workload)}"
    if workload.expert_load is not None:
        how += f", load of experts {load_text(workload.expert_load)}"
    if workload.lengths is not None:
        size += f" of {lengths_text(workload.lengths, workload.seq_len)}"
    return f"{model.name} ({parameters}), {size}, {how}"


def cluster_text(report: Report) -> str:
    """The machine in one line, noting an assumed fabric."""
    cluster = report.plan.cluster
    text = " + ".join(_group_text(cluster.alone(group.name)) for group in cluster.groups)
    if len(cluster.groups) > 1:
        text += f"; joined by {cluster.levels[0].fabric}"
    if len(cluster.zones) > 1:
        zones = " | ".join(cluster.zones)
        text += f" in a zone, zones {zones} by {cluster.levels[1].fabric}"
    assumed = any(note.path.endswith(".fabric") for note in report.assumptions)
    return text + (" (assumed: no fabric given)" if assumed else "")


def _group_text(cluster: ClusterSpec) -> str:
    group = cluster.groups[0]
    nodes = (
        f"{group.nodes} nodes of {group.devices_per_node}"
        if group.nodes > 1
        else str(group.devices_per_node)
    )
    joined = ", ".join(dict.fromkeys(level.fabric for level in cluster.levels))
    return f"{nodes} {group.device}, {joined}"


def interval_text(prediction: Prediction) -> str:
    """The step time with the half width of its interval."""
    return f"{format_seconds(prediction.step_time_s)} {half_width_text(prediction)}"


def half_width_text(prediction: Prediction) -> str:
    """Half the width of the step's interval: ``± 25 %``."""
    low, high = prediction.step_time_interval_s
    return f"± {(high - low) / 2 / prediction.step_time_s * 100:.0f} %"


def percent(fraction: float) -> str:
    """``51.3 %`` with one decimal, ``<0.1 %`` for almost nothing."""
    if 0 < fraction < 0.0005:
        return "<0.1 %"
    return f"{fraction * 100:.1f} %"


def mfu_text(prediction: Prediction) -> str:
    """``75.6 % MFU (full attention; 40.1 % with causal attention halved)``."""
    return f"{percent(prediction.mfu)} MFU ({mfu_note(prediction)})"


def mfu_note(prediction: Prediction) -> str:
    """How MFU is counted, and the other convention's where it differs."""
    other = prediction.mfu_causal
    if not differs_by_convention(prediction.mfu, other):
        return MFU_NOTE
    return f"{MFU_NOTE}; {percent(other or 0.0)} with causal attention halved"


def differs_by_convention(mfu: float, mfu_causal: float | None) -> bool:
    """True if two conventions of MFU are more than two points apart."""
    return mfu_causal is not None and mfu - mfu_causal > MIN_MFU_DIFFERENCE


def tokens_text(prediction: Prediction) -> str:
    """``1284 tokens/s a device, 10272 in all``."""
    text = f"{format_number(prediction.tokens_per_s_per_device)} tokens/s a device"
    if prediction.tokens_per_s is None:
        return text
    return f"{text}, {format_number(prediction.tokens_per_s)} in all"


def sources_text(report: Report) -> str:
    """Format the sources of prices: ``93 % measured, 7 % analytic``."""
    shares = [(share, name) for name, share in report.source_share.items() if share > 0]
    return ", ".join(f"{share * 100:.0f} % {name}" for share, name in sorted(shares, reverse=True))


def search_text(report: Report) -> str:
    """Format the search's progress in one line; '' for a simulation."""
    search = report.search
    if search is None:
        return ""
    done = f"{search.candidates} plans simulated in {format_seconds(search.seconds)}"
    cheap = search.objective.name == "cost"
    if search.gap == 0:
        return f"{done}; proven the {'cheapest' if cheap else 'fastest'} of its space"
    why = {
        "proof": "the proof is complete",
        "work": "stopped at its work limit",
        "deadline": "stopped early, by deadline or Ctrl-C",
    }[search.stopped_by]
    bound = format_seconds(search.lower_bound_s)
    if cheap and search.objective.bound is not None:
        bound = f"{search.objective.bound * 1e6:.4g} {search.objective.unit[:-8]} a million tokens"
    return f"{done}; {why}: at most {percent(search.gap)} above the proven bound {bound}"


def stage_text(row: MemoryRow, memory: Sequence[MemoryRow]) -> str:
    """``stage 2``, with the device group where the stage has several."""
    several = sum(other.stage == row.stage and other.tier == row.tier for other in memory) > 1
    return f"stage {row.stage}" + (f", {row.device_group}" if several else "")


def excess_lines(memory: Sequence[MemoryRow], rule: MemoryRule) -> list[str]:
    """List at most three excesses, worst first: tier, stage, amounts."""
    over = [(rule.excess_bytes(row), row) for row in memory if rule.excess_bytes(row) > 0]
    over.sort(key=lambda pair: (-pair[0], pair[1].stage))
    lines = [
        f"{row.tier} of {stage_text(row, memory)} may need "
        f"{format_bytes(row.capacity_bytes + excess)} of {format_bytes(row.capacity_bytes)}: "
        f"over by {format_bytes(excess)}"
        for excess, row in over[:3]
    ]
    if len(over) > 3:
        lines.append(f"{len(over) - 3} more stages are over by less")
    return lines
