"""Long tables of cases, of which ``make test`` runs a part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

EVERY: Mapping[str, int] = {
    "api/service/test_operations.py": 4,
    "distributed/test_lora.py": 18,
    "distributed/checkpoints/test_checkpoint_families.py": 6,
    "distributed/checkpoints/test_checkpoints.py": 6,
    "distributed/test_cpu_offload.py": 8,
    "distributed/encoders/test_encoder_lora.py": 7,
    "distributed/encoders/test_encoder_decoders.py": 11,
    "distributed/sequences/test_encoder_sequences.py": 8,
    "distributed/encoders/test_encoders.py": 8,
    "distributed/experts/test_expert_lora.py": 18,
    "distributed/experts/test_expert_lowering.py": 9,
    "distributed/experts/test_expert_memory.py": 9,
    "distributed/experts/test_experts.py": 20,
    "distributed/checkpoints/test_hf_weights.py": 4,
    "distributed/launch/test_join.py": 2,
    "distributed/sequences/test_latent_sequences.py": 7,
    "distributed/test_live_bytes.py": 18,
    "distributed/test_lowering.py": 8,
    "distributed/test_heterogeneous_stages.py": 8,
    "distributed/test_parity.py": 14,
    "distributed/sequences/test_sequence_bytes.py": 12,
    "distributed/sequences/test_sequence_lowering.py": 10,
    "distributed/sequences/test_sequence_parity.py": 16,
    "distributed/test_techniques.py": 2,
    "distributed/test_training.py": 2,
    "distributed/test_user_modules.py": 5,
    "distributed/launch/test_watchdog.py": 3,
    "executor/checkpoint/test_session.py": 3,
    "executor/test_dry_run.py": 3,
    "planner/bounds/test_bounds.py": 3,
    "planner/oracle/test_cost_oracle.py": 3,
    "planner/search/test_largest_size.py": 3,
    "planner/oracle/test_heterogeneous_oracle.py": 3,
    "planner/oracle/test_oracle.py": 7,
    "planner/search/test_published_plans.py": 5,
    "planner/search/test_work_limits.py": 3,
    "planner/what_if/test_what_if_rates.py": 2,
    "techniques/test_cpu_offload.py": 5,
}
"""Of the parametrised cases of these files in ``tests``, ``make test`` runs one in so many."""


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
