"""The repeated layers of a module that somebody else wrote."""

from __future__ import annotations

from typing import NamedTuple

from torch import nn

from ...spec.errors import InputError, nearest_name


class RepeatedLayers(NamedTuple):
    """Layers of one class, in the order of the module's list."""

    name: str
    blocks: tuple[nn.Module, ...]


def find_layers(module: nn.Module, named: str | None = None) -> RepeatedLayers:
    """The named layer list, or the one with most parameters.

    ``named``: dotted name of an ``nn.ModuleList`` or ``nn.Sequential``.

    Raises:
        InputError: there is none.
    """
    lists = {
        name: tuple(child.children())
        for name, child in module.named_modules()
        if isinstance(child, (nn.ModuleList, nn.Sequential)) and len(child)
    }
    if named is not None:
        if named not in lists:
            allowed = "a list of layers: " + (", ".join(lists) or "this module has none")
            raise InputError("layers", named, allowed, nearest_name(named, list(lists)))
        return RepeatedLayers(named, lists[named])
    alike = {name: blocks for name, blocks in lists.items() if len({type(b) for b in blocks}) == 1}
    if not alike:
        class_name = type(module).__name__
        raise InputError("layers", class_name, "a module with a list of layers of one class")
    name = max(alike, key=lambda key: (sum(map(_elements, alike[key])), -len(key)))
    return RepeatedLayers(name, alike[name])


def _elements(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


__all__ = ["RepeatedLayers", "find_layers"]
