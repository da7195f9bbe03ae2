"""Common parts of image models: their language tower, the size of an image, the two joined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...errors import InputError, NotBuiltError
from ...model.model_spec import ModelSpec, Tower, TowerEdge
from ..config_keys import ConfigKeys
from ..family import Family

TEXT = "text_config"
IMAGE = "image_size"
ANY_SIZE = (
    "images may have any size; priced with one square image a sample, of so many pixels a side: "
    "give vision_config.image_size for another"
)


def read_language(
    config: ConfigKeys,
    name: str,
    families: Mapping[str, Family],
    default: str,
    sizes: Mapping[str, int] | None = None,
) -> ModelSpec:
    """The language model of ``text_config``, or of the same keys beside ``vision_config``.

    Args:
        config: the whole configuration.
        name: of the model.
        families: text families by the ``model_type`` of ``text_config``.
        default: the family of a text configuration that names none.
        sizes: defaults of sizes that published files leave out.
    """
    part = config.part(TEXT, "") if config.has(TEXT) else _flat(config)
    model_type = part.text_or("model_type", default) if config.has(TEXT) else default
    if model_type not in families:
        near = ", ".join(families)
        raise NotBuiltError(f"{part.where}: model_type {model_type}", f"nearest: {near}")
    family = families[model_type]
    part.config_class, part.size_defaults = family.config_class, sizes or {}
    part.known(*family.known)
    model = family.build(part, name)
    part.note_dropout(family.dropout)
    return model


def _flat(config: ConfigKeys) -> ConfigKeys:
    """The configuration itself, for the keys of its text part (Qwen's published files)."""
    part = ConfigKeys(config.document, config.where, "")
    part.assumptions = config.assumptions
    return part


def image_side(vision: ConfigKeys, step: int, default: int) -> int:
    """Side of the square image that is priced, in pixels: a multiple of ``step``."""
    if not vision.has(IMAGE):
        vision.assume(IMAGE, default, ANY_SIZE)
        return default
    side = vision.count(IMAGE)
    if side % step:
        near = max(1, round(side / step)) * step
        raise InputError(f"{vision.where}: {IMAGE}", side, f"a multiple of {step}", near)
    return side


def joined(name: str, vision: Tower, language: ModelSpec, *, tied: bool) -> ModelSpec:
    """The two towers, the first of which feeds the other."""
    text = replace(language.towers[0], name="language")
    return ModelSpec(
        name=name,
        towers=(vision, text),
        edges=(TowerEdge(source=vision.name, target=text.name),),
        tie_embeddings=tied,
    )
