"""Models of torchtitan by name and flavor, and the presets that they are.

torchtitan/models/*/__init__.py at 0.2.2; flavors without a preset are not here.
"""

from __future__ import annotations

from ....datasets.models.load import presets
from ....spec.model.model_spec import ModelSpec

FLAVORS = {
    ("llama3", "8B"): "llama-3.1-8b",
    ("llama3", "70B"): "llama-3.1-70b",
    ("llama3", "405B"): "llama-3.1-405b",
    ("qwen3", "0.6B"): "qwen3-0.6b",
    ("qwen3", "1.7B"): "qwen3-1.7b",
    ("qwen3", "4B"): "qwen3-4b",
    ("qwen3", "8B"): "qwen3-8b",
    ("qwen3", "30B-A3B"): "qwen3-30b-a3b",
    ("qwen3", "235B-A22B"): "qwen3-235b-a22b",
    ("deepseek_v3", "671B"): "deepseek-v3",
    ("gpt_oss", "120b"): "gpt-oss-120b",
}


def flavor_of(preset: str) -> tuple[str, str] | None:
    """Name and flavor of a preset, or None."""
    return next((flavor for flavor, name in FLAVORS.items() if name == preset), None)


def has_flavor(model: ModelSpec) -> bool:
    """True if a model is a preset that has a flavor."""
    return flavor_of(model.name) is not None and presets()[model.name].model == model
