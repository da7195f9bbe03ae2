"""Long tables of cases on ranks: ``make test`` runs a part of each, ``make evidence`` all of it."""

from __future__ import annotations

from collections.abc import Mapping

EVERY: Mapping[str, int] = {
    "test_adapters.py": 8,
    "test_encoder_adapters.py": 4,
    "test_encoder_decoders.py": 4,
    "test_encoder_sequences.py": 4,
    "test_encoders.py": 4,
    "test_expert_adapters.py": 7,
    "test_expert_lowering.py": 6,
    "test_expert_memory.py": 4,
    "test_experts.py": 8,
    "test_latent_sequences.py": 4,
    "test_live_bytes.py": 7,
    "test_lowering.py": 3,
    "test_mixed_stages.py": 3,
    "test_parity.py": 7,
    "test_sequence_bytes.py": 4,
    "test_sequence_lowering.py": 7,
    "test_sequence_parity.py": 8,
    "test_user_modules.py": 4,
}
"""Of the parametrised cases of these files, ``make test`` runs one in so many."""
