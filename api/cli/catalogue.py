"""``plan models`` and ``plan clusters``: the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .output import check_targets, emit

if TYPE_CHECKING:
    from rich.console import Console


def models_command(name: str | None, json_target: str | None) -> None:
    """List the presets, or show one model."""
    from ..catalogue.models import models_document
    from ..terminal.models import print_model, print_models

    check_targets(json=json_target)
    document = models_document(name)

    def show(out: Console) -> None:
        if name is None:
            print_models(out, document)
        else:
            print_model(out, document)

    emit(document, json_target, show)


def clusters_command(name: str | None, json_target: str | None) -> None:
    """List devices, nodes and fabrics, or show one of them."""
    from ..catalogue.clusters import clusters_document
    from ..terminal.catalogue import print_about, print_clusters

    check_targets(json=json_target)
    document = clusters_document(name)

    def show(out: Console) -> None:
        if name is None:
            print_clusters(out, document)
        else:
            print_about(out, document)

    emit(document, json_target, show)
