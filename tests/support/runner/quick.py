"""Quick tests, ``make unit``: all files but those that take long.

A file is left out if it takes more than a second of a core (three, where a test takes less than
35 ms of them), or shares the service, or starts ranks. A new one is in until it is named here.
``make test`` runs all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from runner.order import SERVICE, together
from runner.sampled import table_name

SLOW: Mapping[str, str] = {
    "api/browser": "browser_tasks",
    "api/cli": (
        "calibrate calibrate_memory catalogue_and_run device_groups galvatron "
        "no_code_from_data plan process what_if zones"
    ),
    "api/jobs": (
        "displaced_database jumping_clock new_jobs orphans search_child slots supervisor"
    ),
    "api/mistakes": "mistakes",
    "api/python": "notebook_handles python",
    "api/service": "operations pool scratch_folder",
    "api/validation": "published_run validate",
    "benchmarks": "evidence expert_requests gpu_report gpu_report_parts items neighbors",
    "costmodel/calibration": "calibration",
    "costmodel/explain": "explain",
    "costmodel/lowering": "layer_parts lowering",
    "costmodel/pricing": "overlap_modes profile_table zone_prices",
    "costmodel/simulation": (
        "context_parallel_plans event_simulation expert_plans idle_devices simulation "
        "split_backward_schedules"
    ),
    "docs": "doc_blocks",
    "executor": "actions dry_run",
    "executor/checkpoint": "session storage",
    "executor/launch": "fake_ranks join",
    "executor/models": "compiled_regions",
    "executor/tracing": "memory_snapshot",
    "kernels": "block_quantize fused_families kernels_compile token_permutation",
    "layout": "gates import_contracts imports types wheel",
    "notebooks": "notebooks",
    "planner/bounds": "bounds lp_solver peak_bytes pipeline_bounds stage_feasibility",
    "planner/galvatron": "galvatron_search",
    "planner/heterogeneous": "search zones",
    "planner/oracle": "cost_oracle heterogeneous_oracle oracle oracle_checks tower_oracle",
    "planner/pins": "pinned_compile",
    "planner/search": (
        "intensification largest_size local_search more_memory published_plans search_progress "
        "tied_embeddings work_limits"
    ),
    "planner/solve": "solve_frames",
    "planner/what_if": "what_if what_if_rates",
    "profiler": "budgets device_profile device_rows host_overhead",
    "spec": "plan_document stage_order",
    "techniques": "cpu_offload toys",
}
"""By folder of ``tests``: names of files, without ``test_``, that take long."""
FILES = frozenset(
    f"{folder}/test_{name}.py" for folder, names in SLOW.items() for name in names.split()
)


def is_slow(path: Path) -> bool:
    """True if ``make unit`` leaves a test file out."""
    name = table_name(path)
    return name in FILES or together(f"tests/{name}") in (SERVICE, "ranks")
