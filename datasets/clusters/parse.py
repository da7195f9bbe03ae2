"""Clusters from typed text: counted devices, this machine, or a file.

    16x8xH100-80GB@8x400G-IB   counted (:mod:`text`)
    2x8xH100+4x8xA100          counted groups joined (:mod:`joined`)
    1x(4xA100+4xV100)          kinds of device in one node (:mod:`mixed_node`)
    local, local:N             this machine's cores (:mod:`local`)
    FILE.yaml, FILE.json       typed keys (:mod:`file`)

Each gives the cluster, the assumptions made, and its full text.
"""

from __future__ import annotations

from pathlib import Path

from ...spec.errors import InputError
from ..catalogue.tables import DOCUMENT_SUFFIXES
from .joined import joined_text
from .local import local_cluster
from .mixed_node import mixed_node_text
from .parsed_cluster import ParsedCluster
from .text import EXAMPLE, FORMS, counted_cluster

MAX_TEXT = 1000


def parse_cluster(text: str, where: str = "--cluster") -> ParsedCluster:
    """Parse the text of a cluster.

    Raises:
        InputError: nothing that reads as a cluster, a count out of range, an unknown name.
    """
    stripped = text.strip()
    if not stripped.isprintable() or len(stripped) > MAX_TEXT:
        raise InputError(where, text, FORMS, EXAMPLE)
    if _is_file(stripped):
        from .file import cluster_from_file  # brings in the YAML library

        return cluster_from_file(Path(stripped).expanduser())
    if "(" in stripped or ")" in stripped:
        return mixed_node_text(stripped, where)
    if "+" in stripped:
        return joined_text(stripped, where)
    if stripped.partition(":")[0].partition("@")[0].casefold() == "local":
        return local_cluster(stripped, where)
    return counted_cluster(stripped, where)


def _is_file(text: str) -> bool:
    if text.endswith(DOCUMENT_SUFFIXES) or text.startswith((".", "/", "~")):
        return True
    try:
        return bool(text) and Path(text).is_file()
    except OSError:  # a name too long for the file system
        return False
