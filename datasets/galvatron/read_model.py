"""Times and memory of a model's layers from Galvatron's files.

Only measurements with Megatron's sequence parallelism are read (keys that end in ``_sp``),
with which its search runs.
"""

from __future__ import annotations

from pathlib import Path

from ...spec.errors import InputError
from .fields import Fields
from .profile import EmbeddingHeadProfile, LayerProfile, ModelProfile

MIN_BATCHES = 8
"""Least number of batch sizes that a line is fitted to, as in Galvatron, but for a single one."""
TIMES = r"layertype_(\d{1,4}|other)_bsz([1-9]\d{0,6})_seq([\d_]{1,40})"
RAW_TIMES = r"layernum\[[\d,]+\]_bsz\d+_seq[\d_,\[\]]+"
RAW_MEMORY = r"\d+_\d+_\d+(_vtp)?(_c)?(_sp)?|layertype_\d+|other_memory_pp_(off|on_first|on_last)"
TimeTable = tuple[tuple[int, float], ...]


def read_model(times: Path, memory: Path, seq_lens: tuple[int, ...]) -> ModelProfile:
    """The profile of a model.

    Raises:
        InputError: a file or key that is missing or unusable, or unexpected layer types.
    """
    forward = _forward(Fields.of_file(times), seq_lens)
    fields = Fields.of_file(memory)
    matches = fields.matching(
        r"layertype_(\d{1,4})_sp", r"other_memory_pp_(off|on_first|on_last)_sp", ignored=RAW_MEMORY
    )
    types = {int(m[1]) for m, _ in matches if m[1].isdigit()}
    if types != set(range(len(seq_lens))):
        type_list = f"layer types {sorted(types)}"
        raise InputError(str(memory), type_list, f"the model's {len(seq_lens)}, counted from 0")
    layers = tuple(
        _layer(fields.inner(f"layertype_{number}_sp"), seq_len, forward[str(number)])
        for number, seq_len in enumerate(seq_lens)
    )
    together, first, last = (
        _embedding_head(fields.inner(f"other_memory_pp_{position}_sp"), seq_lens)
        for position in ("off", "on_first", "on_last")
    )
    return ModelProfile(
        layers=layers,
        embedding_head_forward_ms=forward["other"],
        together=together,
        first=first,
        last=last,
    )


def _forward(fields: Fields, seq_lens: tuple[int, ...]) -> dict[str, TimeTable]:
    """(samples, ms a sample) by layer type, at the requested sequence length."""
    lengths = {str(n): {str(s)} for n, s in enumerate(seq_lens)}
    lengths["other"] = {str(seq_lens[0]), _lengths_key(seq_lens)}
    samples: dict[str, list[tuple[int, float]]] = {name: [] for name in lengths}
    for match, key in fields.matching(TIMES, ignored=RAW_TIMES):
        value = fields.number(key)
        if match[1] not in samples:
            allowed = f"the model's {len(seq_lens)} layer types, counted from 0"
            raise InputError(fields.where, key, allowed)
        if match[3] in lengths[match[1]]:
            samples[match[1]].append((int(match[2]), value))
    for name, rows in samples.items():
        if len(rows) != 1 and len(rows) < MIN_BATCHES:
            tokens = " or ".join(sorted(lengths[name]))
            where = f"{fields.where}: layertype_{name}_bsz*_seq{tokens}"
            allowed = f"one, or at least {MIN_BATCHES}, for a line is fitted to them"
            raise InputError(where, f"{len(rows)} batch sizes", allowed)
    return {name: tuple(rows) for name, rows in samples.items()}


def _lengths_key(seq_lens: tuple[int, ...]) -> str:
    return "_".join(map(str, seq_lens))


def _layer(fields: Fields, seq_len: int, forward_ms: TimeTable) -> LayerProfile:
    sizes = fields.inner(str(seq_len))
    activations = sizes.inner("tp_activation_per_bsz_dict")
    degrees = [
        (m, k) for m, k in activations.matching(r"[1-9]\d{0,6}", "checkpoint") if k.isdigit()
    ]
    return LayerProfile(
        parameter_mb=sizes.number("parameter_size"),
        activation_mb={int(key): activations.number(key) for _, key in degrees},
        recomputed_mb=activations.number("checkpoint"),
        forward_ms=forward_ms,
    )


def _embedding_head(fields: Fields, seq_lens: tuple[int, ...]) -> EmbeddingHeadProfile:
    joined = _lengths_key(seq_lens)
    sizes = fields.inner(joined if joined in fields.values else str(seq_lens[0]))
    return EmbeddingHeadProfile(
        states_mb=sizes.by_degree("model_states"), activation_mb=sizes.by_degree("activation")
    )
