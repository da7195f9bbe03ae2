"""JSON to and from the nouns: canonical bytes out, strict validation in.

Out: keys sorted, no spaces, values equal to their default left out, so equal values give
equal bytes. In: pydantic in strict mode, unknown and duplicate keys refused, the first
problem reported as one line.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError

from .errors import InputError, nearest_name
from .files import MAX_DOCUMENT_BYTES, read_text, write_atomically
from .finite_numbers import FINITE_ONLY, NonFiniteError, non_finite_error

__all__ = [
    "MAX_DOCUMENT_BYTES",
    "canonical_json",
    "content_hash",
    "dump_compact",
    "dump_pretty",
    "from_document",
    "from_json",
    "json_schema",
    "parse_json",
    "read_text",
    "to_document",
    "write_atomically",
]

T = TypeVar("T")
_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


def to_document(value: Any) -> Any:
    """The JSON-ready form of a noun: dataclasses become dicts without default values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: to_document(item)
            for field in dataclasses.fields(value)
            if not _is_default(field, item := getattr(value, field.name))
        }
    if isinstance(value, Mapping):
        return {str(key): to_document(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_document(item) for item in value]
    return value


def _is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    if field.name == "kind":  # the tag of a union is never left out
        return False
    if field.default is not dataclasses.MISSING:
        return bool(value == field.default)
    if field.default_factory is not dataclasses.MISSING:
        return bool(value == field.default_factory())
    return False


def canonical_json(value: Any) -> str:
    """Byte-stable JSON text of a noun."""
    document = to_document(value)
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def content_hash(value: Any) -> str:
    """``sha256:…`` of the canonical JSON."""
    return "sha256:" + hashlib.sha256(canonical_json(value).encode()).hexdigest()


_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}


def _adapter(target: type[Any]) -> TypeAdapter[Any]:
    if target not in _ADAPTERS:
        _mark_strict(target, set())
        _ADAPTERS[target] = TypeAdapter(target)
    return _ADAPTERS[target]


def _mark_strict(target: Any, visited: set[Any]) -> None:
    """Give every dataclass reachable from ``target`` the strict configuration."""
    if target in visited:
        return
    visited.add(target)
    if dataclasses.is_dataclass(target):
        if "__pydantic_config__" not in vars(target):
            cast(Any, target).__pydantic_config__ = _STRICT
        for hint in _type_hints(target).values():
            _mark_strict(hint, visited)
    for argument in getattr(target, "__args__", ()) or ():
        try:
            _mark_strict(argument, visited)
        except TypeError:  # literals hold unhashable or plain values
            continue


def _type_hints(target: Any) -> dict[str, Any]:
    import typing

    return typing.get_type_hints(target)


def from_json(
    target: type[T],
    text: str | bytes,
    where: str,
    context: Mapping[str, Any] | None = None,
    limit_bytes: int = MAX_DOCUMENT_BYTES,
) -> T:
    """Build a noun from JSON text.

    Args:
        target: the dataclass to build.
        text: JSON text, at most ``limit_bytes``.
        where: name of the document in an error, such as its path.
        context: for validators of the noun.
        limit_bytes: longest text that is read.

    Raises:
        InputError: not JSON, a duplicate or unknown key, or a value outside its range.
    """
    parse_json(text, where, limit_bytes)  # duplicate keys and depth are refused before validation
    try:
        return cast(T, _adapter(target).validate_json(text, context=context))
    except ValidationError as error:
        raise _first_problem(error, where, target) from None


def from_document(
    target: type[T], document: Any, where: str, context: Mapping[str, Any] | None = None
) -> T:
    """Build a noun from a parsed JSON document; same errors as :func:`from_json`."""
    try:
        text = json.dumps(document, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(where, type(document).__name__, f"JSON values ({error})") from None
    return from_json(target, text, where, context)


def parse_json(text: str | bytes, where: str, limit_bytes: int = MAX_DOCUMENT_BYTES) -> Any:
    """Parse JSON; refuse duplicate keys, numbers that are not finite, and deep nesting.

    Raises:
        InputError: no such document; a number that is not finite by its place.
    """
    if len(text) > limit_bytes:
        allowed = f"a document of at most {limit_bytes >> 20} MiB"
        raise InputError(where, f"{len(text)} bytes", allowed)
    try:
        return json.loads(text, object_pairs_hook=_unique, **FINITE_ONLY)
    except NonFiniteError as error:
        raise non_finite_error(text, where, str(error)) from None
    except _DuplicateKeyError as error:
        raise InputError(where, f"key '{error}' twice", "each key once") from None
    except json.JSONDecodeError as error:
        position = f"line {error.lineno} column {error.colno}: {error.msg}"
        raise InputError(where, position, "a JSON document") from None
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise InputError(where, str(error) or type(error).__name__, "a JSON document") from None


class _DuplicateKeyError(Exception):
    pass


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for key, value in pairs:
        if key in document:
            raise _DuplicateKeyError(key)
        document[key] = value
    return document


def _first_problem(error: ValidationError, where: str, target: Any) -> InputError:
    problems = error.errors(include_url=False, include_context=False)
    unknown = ("unexpected_keyword_argument", "extra_forbidden")
    problem = min(problems, key=lambda p: p["type"] not in unknown)
    path = ".".join(str(part) for part in problem["loc"] if not str(part).endswith("Layer"))
    name = f"{where}: {path}" if path else where
    value = problem.get("input")
    error_type = problem["type"]
    if error_type in unknown:
        key = str(problem["loc"][-1])
        names = _field_names(target)
        return InputError(name, key, "only known keys", nearest_name(key, names))
    if error_type in ("missing", "missing_argument"):
        return InputError(name, "nothing", "a value (the key is required)")
    return InputError(name, value, problem["msg"].removeprefix("Input should be "))


def _field_names(target: Any) -> list[str]:
    names: list[str] = []
    pending, visited = [target], set()
    while pending:
        item = pending.pop()
        try:
            if item in visited:
                continue
            visited.add(item)
        except TypeError:
            continue
        if dataclasses.is_dataclass(item):
            names += [field.name for field in dataclasses.fields(item)]
            pending += list(_type_hints(item).values())
        pending += list(getattr(item, "__args__", ()) or ())
    return sorted(set(names))


def json_schema(target: type[Any], ref_template: str = "#/$defs/{model}") -> dict[str, Any]:
    """JSON Schema of a noun; ``ref_template`` locates the nouns inside it."""
    return _adapter(target).json_schema(ref_template=ref_template)


def dump_pretty(document: Any, first: Sequence[str] = ()) -> str:
    """Readable, byte-stable JSON for files and terminals, one trailing newline.

    ``first``: keys of the document that lead, in this order; all others are sorted.
    """
    if not first:
        return json.dumps(document, sort_keys=True, indent=1, allow_nan=False) + "\n"
    pairs = [_pair(key, document, indent=1)[2:-2] for key in _leading(document, first)]
    return "{\n" + ",\n".join(pairs) + "\n}\n"


def dump_compact(document: Mapping[str, Any], first: Sequence[str]) -> str:
    """Byte-stable JSON in one line, led by the keys ``first``, all others sorted."""
    pairs = [_pair(key, document, indent=None)[1:-1] for key in _leading(document, first)]
    return "{" + ", ".join(pairs) + "}"


def _leading(document: Mapping[str, Any], first: Sequence[str]) -> list[str]:
    leading = [key for key in first if key in document]
    return leading + sorted(key for key in document if key not in leading)


def _pair(key: str, document: Mapping[str, Any], indent: int | None) -> str:
    return json.dumps({key: document[key]}, sort_keys=True, indent=indent, allow_nan=False)
