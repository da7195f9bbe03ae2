"""Long tables of cases: ``make test`` runs a part of each, ``make evidence`` all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

EVERY: Mapping[str, int] = {
    "test_adapters.py": 12,
    "test_answers.py": 3,
    "test_bounds.py": 2,
    "test_checkpoint_families.py": 6,
    "test_checkpoint_sessions.py": 2,
    "test_checkpoints.py": 6,
    "test_cost_oracle.py": 2,
    "test_cpu_offload.py": 5,
    "test_encoder_adapters.py": 7,
    "test_encoder_decoders.py": 8,
    "test_encoder_sequences.py": 8,
    "test_encoders.py": 8,
    "test_expert_adapters.py": 13,
    "test_expert_lowering.py": 9,
    "test_expert_memory.py": 9,
    "test_experts.py": 15,
    "test_hf_weights.py": 3,
    "test_joining.py": 2,
    "test_latent_sequences.py": 7,
    "test_live_bytes.py": 12,
    "test_lowering.py": 5,
    "test_mixed_oracle.py": 2,
    "test_mixed_stages.py": 5,
    "test_oracle.py": 5,
    "test_parity.py": 14,
    "test_published_plans.py": 3,
    "test_rehearsal.py": 2,
    "test_sequence_bytes.py": 12,
    "test_sequence_lowering.py": 10,
    "test_sequence_parity.py": 11,
    "test_user_modules.py": 4,
    "test_watchdog.py": 3,
}
"""Of the parametrised cases of these files, ``make test`` runs one in so many."""


def sample(items: Sequence[pytest.Item]) -> None:
    """Leave most cases of the long tables to the evidence tier; before tests are chosen by mark."""
    seen: Counter[str] = Counter()
    for item in items:
        name = item.path.name
        if name in EVERY and hasattr(item, "callspec"):
            if seen[name] % EVERY[name]:
                item.add_marker(pytest.mark.evidence)
            seen[name] += 1
