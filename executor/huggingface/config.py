"""The model in a checkpoint's ``config.json``, compared with the plan's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from ...spec.codec import parse_json, read_text
from ...spec.errors import InputError, NotBuiltError, ShardwrightError
from ...spec.huggingface.config import model_from_config
from ...spec.inputs.typed_keys import json_text
from ...spec.model.model_spec import EmbeddingLayer, ModelSpec
from .made_config import candidates

CONFIG_NAME = "config.json"
MODEL_TYPES = ("gpt2", "llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe")
"""Families whose tensors have a mapping here."""
NOT_RUN = ("rope_scaling", "scale_attn_weights", "scale_attn_by_inverse_layer_idx")
"""What a configuration may ask for that changes the numbers and is not run."""
SAVED_DTYPE = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A field in which a checkpoint's model differs from the plan's."""

    field: str
    given: Any
    expected: Any


def read_config(folder: Path, where: str) -> Mapping[str, Any]:
    """The configuration in a checkpoint's folder.

    Raises:
        InputError: no folder, or no usable configuration in it.
    """
    if not folder.is_dir():
        raise InputError(where, str(folder), f"a folder with {CONFIG_NAME} and safetensors files")
    path = folder / CONFIG_NAME
    document = parse_json(read_text(path, "a model's configuration"), str(path))
    if not isinstance(document, dict):
        raise InputError(str(path), type(document).__name__, "a JSON object")
    return document


def check_config(folder: Path, model: ModelSpec, seq_len: int, where: str) -> Mapping[str, Any]:
    """The configuration of a checkpoint with the plan's model.

    ``seq_len``: length of a position table that the model leaves open; ``where``: the folder's name
    in errors, such as ``--init-from``.

    Raises:
        InputError: another model; the first field that differs.
        NotBuiltError: a family whose tensors have no mapping, or a part that is not run.
    """
    document = read_config(folder, where)
    path = str(folder / CONFIG_NAME)
    kind = document.get("model_type", MODEL_TYPES[0])  # a missing one is refused where it is read
    if kind not in MODEL_TYPES:
        families = ", ".join(MODEL_TYPES)
        raise NotBuiltError(f"{where}: weights of model_type {kind}", f"known: {families}")
    described, notes = model_from_config(document, folder.name, path)
    for note in notes:
        key = note.path.removeprefix("model.")
        if key in NOT_RUN:
            raise NotBuiltError(
                f"{path}: {key} {json_text(note.value)}", "its logits would be others"
            )
    if mismatch := difference(described, model, seq_len):
        expected = (
            f"{json_text(mismatch.expected)}, as the plan's model (plan --model {folder} is this)"
        )
        raise InputError(f"{path}: {mismatch.field}", json_text(mismatch.given), expected)
    return document


def difference(actual: ModelSpec, expected: ModelSpec, seq_len: int) -> Difference | None:
    """First field in which two models differ, names aside; None if equal.

    ``seq_len``: length of a position table that ``expected`` leaves open.
    """
    for field in ("tie_embeddings", "hidden", "vocab", "block_count"):
        values = getattr(actual, field), getattr(expected, field)
        if values[0] != values[1]:
            return Difference(field=field, given=values[0], expected=values[1])
    layers = actual.layers(), expected.layers()
    if len(layers[0]) != len(layers[1]):
        return Difference(field="layers", given=len(layers[0]), expected=len(layers[1]))
    for index, (one, other) in enumerate(zip(*layers, strict=True)):
        if isinstance(other, EmbeddingLayer) and other.positions is None:
            other = replace(other, positions=seq_len)
        if mismatch := _differs(f"layers[{index}]", one, other):
            return mismatch
    return None


def _differs(path: str, actual: Any, expected: Any) -> Difference | None:
    if actual == expected:
        return None
    if not is_dataclass(actual) or type(actual) is not type(expected):
        words = [getattr(x, "kind", "plain") if is_dataclass(x) else x for x in (actual, expected)]
        return Difference(field=path, given=words[0], expected=words[1])
    for field in fields(actual):
        actual_value, expected_value = getattr(actual, field.name), getattr(expected, field.name)
        if mismatch := _differs(f"{path}.{field.name}", actual_value, expected_value):
            return mismatch
    return None


def config_for(model: ModelSpec, seq_len: int) -> Mapping[str, Any]:
    """A transformers configuration that describes a model.

    Raises:
        NotBuiltError: no family with a mapping computes this model.
    """
    for document in candidates(model, seq_len):
        try:
            described, _ = model_from_config(document, model.name, CONFIG_NAME)
        except ShardwrightError:  # this family cannot say it
            continue
        if difference(described, model, seq_len) is None:
            return document
    families = ", ".join(MODEL_TYPES)
    raise NotBuiltError(f"--save-hf: {model.name} as a model of transformers", f"known: {families}")


def saved_config(document: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration beside weights written in float32."""
    key = "dtype" if "dtype" in document else "torch_dtype"
    return {**document, key: SAVED_DTYPE}
