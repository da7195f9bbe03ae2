"""The quick tests, ``make unit``: of every subpackage all files but those that take long.

A file is left out if it takes more than a second of a core (three, where a test takes less than
35 ms of them), or shares the service, or starts ranks. A new one is in until it is named here.
``make test`` runs all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from order import SERVICE, together
from sampled import table_name

SLOW: Mapping[str, str] = {
    "api/mistakes": "mistakes",
    "api": (
        "answers browser_tasks calibrate calibrate_memory catalogue_and_run cli_plan cli_process "
        "device_groups new_jobs no_code_from_data notebook_handles published_run python "
        "validate what_if zones"
    ),
    "benchmarks": "gpu_report gpu_report_parts neighbours",
    "costmodel": (
        "calibration context_plans idle_devices kernel_table lowering overlap_modes "
        "simulation span_simulation split_simulation"
    ),
    "docs": "doc_blocks",
    "executor": (
        "checkpoint_sessions checkpoint_storage compiled_blocks fake_ranks joining rehearsal"
    ),
    "kernels": "block_quantise fused_families kernels_compile token_permutation",
    "layout": "gates import_contracts imports wheel",
    "notebooks": "notebooks",
    "planner": (
        "bounds cost_oracle galvatron_search held_bytes largest mixed_oracle mixed_search "
        "more_memory open_shapes oracle oracle_checks path_bounds pinned_compile "
        "published_plans search_limits solver stage_contents tied_ends tower_oracle "
        "watched_search what_if what_if_rates zoned_search"
    ),
    "profiler": "budgets device_profile device_rows host_overhead",
    "spec": "plan_document",
    "techniques": "cpu_offload toys",
}
"""By folder of ``tests``: names of files, without ``test_``, that take long."""
FILES = frozenset(
    f"{folder}/test_{name}.py" for folder, names in SLOW.items() for name in names.split()
)


def is_slow(path: Path) -> bool:
    """Whether ``make unit`` leaves a test file out."""
    name = table_name(path)
    return name in FILES or together(f"tests/{name}") in (SERVICE, "ranks")
