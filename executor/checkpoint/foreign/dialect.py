"""Frameworks' names, and the tensors of a source that are a model's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from ....spec.errors import InputError, NotBuiltError
from ....spec.model.layer_parameters import ParameterSpec
from ....spec.model.layers import Layer
from ....spec.model.model_spec import ModelSpec
from ...huggingface.config import config_for
from ...huggingface.families import mapping, own_parameters
from ...huggingface.tensor_piece import TensorPieces
from . import megatron, ours, torchtitan
from .ours import OURS
from .row_map import SourcePiece, SourcePieces
from .source import ForeignSource

MOMENTS = ("exp_avg", "exp_avg_sq")
COUNT, MASTER = "step", ("fp32_param", "param", "master_param")
FLOATS = ("float64", "float32", "float16", "bfloat16")
_EMBEDDINGS = {
    "transformers": ("model.embed_tokens.weight", "transformer.wte.weight"),
    "torchtitan": (torchtitan.EMBEDDING,),
    "megatron-core": (megatron.EMBEDDING,),
}
"""Names of the table of tokens, by dialect."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """Names of a source: its framework, what stands before names, maps, templates of states.

    ``states``: for a moment, ``step`` or master weights, what stands before and after a name.
    """

    name: str
    prefix: str
    pieces: SourcePieces
    states: Mapping[str, tuple[str, str]]


def dialect_of(source: ForeignSource, model: ModelSpec, seq_len: int) -> Dialect:
    """The dialect of a source that holds a model, checked tensor by tensor.

    Raises:
        InputError: names of no framework, or another model: the first tensor that differs.
        NotBuiltError: a model that transformers has no class for, under its names.
    """
    name, embedding, prefix = _recognized(source)
    states = ours.states(source) if name == OURS else _states(source, embedding)
    dialect = Dialect(name, prefix, _pieces(source, model, seq_len, name, prefix), states)
    used = check_model(source, dialect, model, seq_len)
    _check_rest(source, dialect, used, model)
    return dialect


def framework_of(source: ForeignSource) -> str | None:
    """The framework whose names a source has; None for no known one."""
    try:
        return _recognized(source)[0]
    except InputError:
        return None


def _recognized(source: ForeignSource) -> tuple[str, str, str]:
    """Framework, its name of the table of tokens, and what stands before it."""
    if source.kind == OURS:
        return OURS, "", ours.MODEL
    found = [
        (len(name), framework, known, name.removesuffix(known))
        for name in source.tensors
        for framework, names in _EMBEDDINGS.items()
        for known in names
        if name == known or name.endswith(f".{known}")
    ]
    if not found:
        given = "names such as " + (", ".join(sorted(source.tensors)[:3]) or "none")
        allowed = "those of transformers, torchtitan or Megatron-core"
        raise InputError(str(source.folder), given, allowed)
    return min(found)[1:]


def _pieces(
    source: ForeignSource, model: ModelSpec, seq_len: int, name: str, prefix: str
) -> SourcePieces:
    shapes = {n.removeprefix(prefix): t.shape for n, t in source.tensors.items()}
    if name == OURS:
        return ours.pieces
    if name == "torchtitan":
        return torchtitan.TorchtitanNames(shapes).pieces
    if name == "megatron-core":
        return megatron.MegatronNames(shapes, model.block_count).pieces
    return partial(_of_transformers, mapping(config_for(model, seq_len)))


def _of_transformers(
    pieces: TensorPieces, index: int, layer: Layer, spec: ParameterSpec
) -> tuple[SourcePiece, ...]:
    rows = spec.shape[1 if spec.expert else 0]
    return tuple(SourcePiece.of(piece, rows) for piece in pieces(index, layer, spec))


def _states(source: ForeignSource, embedding: str) -> dict[str, tuple[str, str]]:
    states: dict[str, tuple[str, str]] = {}
    for key in (*MOMENTS, COUNT, *MASTER):
        for name in (*source.tensors, *source.values):
            if name.endswith(f"{embedding}.{key}"):
                states[key] = (name.removesuffix(f"{embedding}.{key}"), f".{key}")
            elif name.endswith(f".{key}.{embedding}"):
                states[key] = (name.removesuffix(embedding), "")
    return states


PieceCheck = Callable[[str, SourcePiece], None]


def model_pieces(
    dialect: Dialect, model: ModelSpec, seq_len: int
) -> list[tuple[int, ParameterSpec, SourcePiece]]:
    """Every piece of a model, with its layer and parameter."""
    try:
        return [
            (index, spec, piece)
            for index, layer in enumerate(model.layers())
            for spec in own_parameters(model, index, seq_len)
            for piece in dialect.pieces(index, layer, spec)
        ]
    except KeyError as error:
        what = f"{dialect.name}'s name of {error.args[0]}"
        raise NotBuiltError(what, "weights of Llama, Qwen, Mixtral and GPT are known") from None


def check_model(
    source: ForeignSource, dialect: Dialect, model: ModelSpec, seq_len: int
) -> set[str]:
    """Compare every tensor of a model with the source; return the names that it uses.

    Raises:
        InputError: the first tensor that is missing, or has another shape or type.
    """
    used = set()
    for _, _, piece in model_pieces(dialect, model, seq_len):
        name = dialect.prefix + piece.name
        tensor = source.tensors.get(name)
        if tensor is None:
            raise InputError(str(source.folder), f"no tensor {name}", "every weight of the model")
        shapes = (tensor.shape, piece.shape)
        padded = piece.padded and shapes[0][:1] >= shapes[1][:1] and shapes[0][1:] == shapes[1][1:]
        if shapes[0] != shapes[1] and not padded:
            allowed = f"shape {shapes[1]}, of the plan's model"
            raise InputError(f"{source.folder}: {name}", f"shape {shapes[0]}", allowed)
        if tensor.dtype not in FLOATS:
            raise InputError(f"{source.folder}: {name}", tensor.dtype, ", ".join(FLOATS))
        used.add(name)
    return used


def _check_rest(source: ForeignSource, dialect: Dialect, used: set[str], model: ModelSpec) -> None:
    """Refuse a weight that the model lacks: another model.

    Raises:
        InputError: its name.
    """
    starts = ("layers.", "decoder.", "model.layers.", "transformer.h.")
    for name in source.tensors:
        if name in used or not name.startswith(dialect.prefix):
            continue
        bare = name.removeprefix(dialect.prefix)
        of_state = any(
            (after and bare.endswith(after)) or (before and name.startswith(before))
            for before, after in dialect.states.values()
        )
        if (
            bare.startswith(starts)
            and not of_state
            and not bare.endswith(
                (
                    megatron.IGNORED,
                    ".rotary_emb.inv_freq",
                    ".attn.bias",
                    ".attn.masked_bias",
                    ".expert_bias",
                    ".tokens_per_expert",
                )
            )
        ):
            allowed = "the tensors of the plan's model"
            raise InputError(f"{source.folder}", f"tensor {name}", allowed)
