"""Long tables of cases: ``make test`` runs a part of each, ``make evidence`` all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

EVERY: Mapping[str, int] = {
    "api/test_answers.py": 4,
    "distributed/test_adapters.py": 18,
    "distributed/test_checkpoint_families.py": 6,
    "distributed/test_checkpoints.py": 6,
    "distributed/test_cpu_offload.py": 8,
    "distributed/test_encoder_adapters.py": 7,
    "distributed/test_encoder_decoders.py": 11,
    "distributed/test_encoder_sequences.py": 8,
    "distributed/test_encoders.py": 8,
    "distributed/test_expert_adapters.py": 18,
    "distributed/test_expert_lowering.py": 9,
    "distributed/test_expert_memory.py": 9,
    "distributed/test_experts.py": 20,
    "distributed/test_hf_weights.py": 4,
    "distributed/test_joining.py": 2,
    "distributed/test_latent_sequences.py": 7,
    "distributed/test_live_bytes.py": 18,
    "distributed/test_lowering.py": 8,
    "distributed/test_mixed_stages.py": 8,
    "distributed/test_parity.py": 14,
    "distributed/test_sequence_bytes.py": 12,
    "distributed/test_sequence_lowering.py": 10,
    "distributed/test_sequence_parity.py": 16,
    "distributed/test_techniques.py": 2,
    "distributed/test_training.py": 2,
    "distributed/test_user_modules.py": 5,
    "distributed/test_watchdog.py": 3,
    "executor/test_checkpoint_sessions.py": 3,
    "executor/test_rehearsal.py": 3,
    "planner/test_bounds.py": 3,
    "planner/test_cost_oracle.py": 3,
    "planner/test_largest.py": 3,
    "planner/test_mixed_oracle.py": 3,
    "planner/test_oracle.py": 7,
    "planner/test_published_plans.py": 5,
    "planner/test_search_limits.py": 3,
    "planner/test_what_if_rates.py": 2,
    "techniques/test_cpu_offload.py": 5,
}
"""Of the parametrised cases of these files in ``tests``, ``make test`` runs one in so many."""


def table_name(path: Path) -> str:
    """A test file as :data:`EVERY` names it."""
    return path.as_posix().rpartition("/tests/")[2]


def sample(items: Sequence[pytest.Item]) -> None:
    """Leave most cases of the long tables to the evidence tier; before tests are chosen by mark."""
    seen: Counter[str] = Counter()
    for item in items:
        name = table_name(item.path)
        if name in EVERY and hasattr(item, "callspec"):
            if seen[name] % EVERY[name]:
                item.add_marker(pytest.mark.evidence)
            seen[name] += 1
