"""Strict reading of one mapping in a JSON or YAML file.

Only unambiguous YAML is read: scalars resolve as in YAML 1.2's core schema (``no`` and ``1e9`` are
texts, both refused as numbers); aliases, merge keys, tags, repeated keys, files over 1 MiB and deep
nesting are refused.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any, ClassVar

import yaml

from ...spec.codec import parse_json, read_text
from ...spec.errors import InputError
from ...spec.finite_numbers import FINITE, NonFiniteError, finite_int, finite_number

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 20
YAML_ALLOWED = "YAML: keys and values, spaces to indent"
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _StrictLoader(_Loader):  # type: ignore[misc]
    """Safe construction with few implicit types and no repeated or merge keys."""

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} is not a text", key_node.start_mark
                )
            if key in keys or key == "<<":
                problem = "a merge key" if key == "<<" else f"key '{key}' twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            keys.add(key)
        return {
            self.construct_object(key_node, deep=True): self.construct_object(value, deep=deep)
            for key_node, value in node.value
        }


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]{1,4000}", list("-+0123456789")),
    ("float", r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    _StrictLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), _first
    )
_StrictLoader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: finite_int(node.value))
_StrictLoader.add_constructor(
    "tag:yaml.org,2002:float", lambda loader, node: finite_number(node.value)
)
_StrictLoader.add_constructor("tag:yaml.org,2002:map", _StrictLoader.construct_mapping)


def read_document(path: Path, what: str) -> dict[str, Any]:
    """The mapping in a ``.json``, ``.yaml`` or ``.yml`` file.

    Raises:
        InputError: missing, a folder, too large, not text, malformed, or not a mapping.
    """
    if path.is_dir():
        raise InputError(str(path), "a folder", f"{what}: a .json, .yaml or .yml file")
    text = read_text(path, what, MAX_BYTES)
    where = str(path)
    if not text.strip():
        raise InputError(where, "an empty file", what)
    document = parse_json(text, where) if path.suffix == ".json" else parse_yaml(text, where)
    if not isinstance(document, dict):
        raise InputError(where, type(document).__name__, f"{what}: keys and values at the top")
    return document


def parse_yaml(text: str, where: str) -> Any:
    """Plain data from YAML text.

    Raises:
        InputError: not the strict YAML that this module reads; the line is named.
    """
    try:
        _refuse_structure(text, where)
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 (a safe loader)
    except NonFiniteError as error:
        raise InputError(where, str(error), FINITE) from None
    except yaml.MarkedYAMLError as error:
        raise InputError(where, _error_position(error, text), YAML_ALLOWED) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        message = " ".join(str(error).split()) or type(error).__name__
        raise InputError(where, message, YAML_ALLOWED) from None


def _refuse_structure(text: str, where: str) -> None:
    """Refuse aliases, tags and deep nesting before anything is built from them."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        line = f"line {event.start_mark.line + 1}" if event.start_mark else "some line"
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise InputError(where, f"an anchor or alias at {line}", "values written out")
        if getattr(event, "tag", None) not in (None, "!"):
            raise InputError(where, f"a tag at {line}", "values without tags")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise InputError(where, f"nesting at {line}", f"at most {MAX_DEPTH} levels")


def _error_position(error: yaml.MarkedYAMLError, text: str) -> str:
    mark = error.problem_mark or error.context_mark
    line = mark.line if mark is not None else 0
    lines = text.splitlines()
    if line < len(lines) and "\t" in lines[line]:
        return f"a tab at line {line + 1}"
    return f"line {line + 1}: {error.problem or error.context or 'not YAML'}"
