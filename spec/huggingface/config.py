"""ModelSpec from a ``config.json`` of the transformers library.

:mod:`registry` lists the ``model_type`` values that are read. Numbers of layers and heads, hidden
size and vocabulary are required, even where the library has a default, because a model whose size
nobody stated is a mistake. Every other missing key takes the default of the library's
configuration class (transformers 5.23.0) and is listed as an assumption. Dropout and rope scaling
are listed too, for they are neither priced nor run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InputError, NotBuiltError, ShardwrightError, nearest_name
from ..model.model_spec import ModelSpec
from ..report.report import Assumption
from .config_keys import ConfigKeys
from .expert_balance import with_balance
from .family import Family, decoder
from .registry import FAMILIES
from .unread.features import features_of, unread_type
from .unread.keys import check_unread
from .unread.types import REFUSED, TRANSFORMERS_TYPES

__all__ = [
    "MODEL_TYPES",
    "ModelAndAssumptions",
    "config_document",
    "decoder",
    "model_from_config",
]

ModelAndAssumptions = tuple[ModelSpec, tuple[Assumption, ...]]
EXPERT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size")
STORAGE_METHODS = ("fp8", "mxfp4")
"""Storage formats of published weights; training does not start in them."""
BY_TYPE: Mapping[str, Family] = {family.model_type: family for family in FAMILIES}
MODEL_TYPES = tuple(BY_TYPE)


def model_from_config(document: Mapping[str, Any], name: str, where: str) -> ModelAndAssumptions:
    """The model of a configuration, and the assumptions made.

    Raises:
        InputError: a missing, unusable or contradictory key, or an unknown model_type.
        NotBuiltError: a model that is known but not served, or a part of it.
    """
    keys = ConfigKeys(document, where, "PreTrainedConfig")
    keys.require(("model_type",))
    model_type = keys.text("model_type")
    if model_type not in BY_TYPE:
        raise _unread_type(model_type, document, where)
    family = BY_TYPE[model_type]
    config = ConfigKeys(keys.document, where, family.config_class, family.names)
    _refuse_unbuilt(config, family)
    config.known(*family.known)
    model = with_balance(config, model_type, family.build(config, name))
    config.note_dropout(family.dropout)
    check_unread(config, model_type)
    return model, tuple(config.assumptions)


def config_document(source: object) -> Mapping[str, Any] | None:
    """The document of a configuration object of transformers; None for anything else."""
    to_dict = getattr(source, "to_dict", None)
    if isinstance(source, type) or not callable(to_dict) or not hasattr(source, "model_type"):
        return None
    document = to_dict()
    return document if isinstance(document, Mapping) else None


def _unread_type(model_type: str, document: Mapping[str, Any], where: str) -> ShardwrightError:
    """A known type is refused with what it has, a misspelt one with the nearest."""
    if model_type in REFUSED or model_type in TRANSFORMERS_TYPES or features_of(document):
        features, nearest = unread_type(model_type, document, MODEL_TYPES)
        return NotBuiltError(
            f"{where}: model_type {model_type} ({features})", f"nearest: {nearest}"
        )
    allowed = "one of " + ", ".join(MODEL_TYPES)
    near = nearest_name(model_type, MODEL_TYPES)
    return InputError(f"{where}: model_type", model_type, allowed, near)


def _refuse_unbuilt(config: ConfigKeys, family: Family) -> None:
    for key in () if family.experts else EXPERT_KEYS:
        if config.document.get(key) not in (None, False, 0, 1):
            hint = "use a family that has experts, such as mixtral"
            raise NotBuiltError(f"{config.where}: experts in {family.model_type} ({key})", hint)
    _refuse_quantized(config)
    for key in () if family.encoder_decoder else ("is_encoder_decoder", "add_cross_attention"):
        if config.document.get(key):
            raise NotBuiltError(f"{config.where}: cross-attention ({key})", "use t5")


def _refuse_quantized(config: ConfigKeys) -> None:
    key = "quantization_config"
    quantization = config.document.get(key)
    if not quantization:
        return
    method = quantization.get("quant_method") if isinstance(quantization, Mapping) else None
    if method not in STORAGE_METHODS:
        hint = "use the configuration of the unquantised model"
        raise NotBuiltError(f"{config.where}: quantised weights ({key})", hint)
    why = f"weights are published in {method}; the workload's types are what is trained in"
    config.assume(key, None, why)
