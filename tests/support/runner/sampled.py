"""Long tables of cases, of which ``make test`` runs a part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

EVERY: Mapping[str, int] = {
    "api/jobs/test_service_kills.py": 2,
    "api/service/test_operations.py": 5,
    "distributed/checkpoints/test_checkpoint_families.py": 8,
    "distributed/checkpoints/test_checkpoints.py": 8,
    "distributed/checkpoints/test_hf_weights.py": 5,
    "distributed/encoders/test_encoder_decoders.py": 14,
    "distributed/encoders/test_encoder_lora.py": 9,
    "distributed/encoders/test_encoders.py": 11,
    "distributed/experts/test_expert_lora.py": 24,
    "distributed/experts/test_expert_lowering.py": 12,
    "distributed/experts/test_expert_memory.py": 12,
    "distributed/experts/test_experts.py": 26,
    "distributed/launch/test_join.py": 2,
    "distributed/launch/test_watchdog.py": 4,
    "distributed/sequences/test_encoder_sequences.py": 11,
    "distributed/sequences/test_latent_sequences.py": 9,
    "distributed/sequences/test_sequence_bytes.py": 16,
    "distributed/sequences/test_sequence_lowering.py": 13,
    "distributed/sequences/test_sequence_parity.py": 21,
    "distributed/test_cpu_offload.py": 11,
    "distributed/test_heterogeneous_stages.py": 11,
    "distributed/test_live_bytes.py": 24,
    "distributed/test_lora.py": 24,
    "distributed/test_lowering.py": 11,
    "distributed/test_parity.py": 19,
    "distributed/test_techniques.py": 2,
    "distributed/test_training.py": 3,
    "distributed/test_user_modules.py": 7,
    "executor/checkpoint/test_session.py": 4,
    "executor/test_dry_run.py": 5,
    "planner/bounds/test_bounds.py": 5,
    "planner/heterogeneous/test_search.py": 2,
    "planner/heterogeneous/test_zones.py": 3,
    "planner/oracle/test_cost_oracle.py": 5,
    "planner/oracle/test_heterogeneous_oracle.py": 5,
    "planner/oracle/test_oracle.py": 6,
    "planner/search/test_largest_size.py": 4,
    "planner/search/test_published_plans.py": 8,
    "planner/search/test_work_limits.py": 4,
    "planner/what_if/test_what_if_rates.py": 3,
    "techniques/test_cpu_offload.py": 5,
}
"""Of the parametrized cases of these files in ``tests``, ``make test`` runs one in so many."""


def table_name(path: Path) -> str:
    """A test file as :data:`EVERY` names it."""
    return path.as_posix().rpartition("/tests/")[2]


def sample(items: Sequence[pytest.Item]) -> None:
    """Give most cases of the long tables to the evidence tier."""
    seen: Counter[str] = Counter()
    for item in items:
        name = table_name(item.path)
        if name in EVERY and hasattr(item, "callspec"):
            if seen[name] % EVERY[name]:
                item.add_marker(pytest.mark.evidence)
            seen[name] += 1
