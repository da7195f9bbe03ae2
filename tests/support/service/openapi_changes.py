"""What a service's new description takes from those who keep to the old one.

As a program, ``python tests/support/service/openapi_changes.py`` writes the contract of
docs/openapi.json
(without its words and examples) as ``tests/api/golden/openapi-VERSION.json``, where there is none
of that version yet: at a release.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "api" / "golden"
DOCUMENT = ROOT / "docs" / "openapi.json"
METHODS = ("get", "post", "put", "patch", "delete")
WORDS = ("description", "summary", "title", "example", "examples", "tags")
MOST = (("maximum", 1), ("maxLength", 1), ("maxItems", 1), ("minimum", -1), ("minLength", -1),
        ("minItems", -1))  # fmt: skip
"""Limits of what is sent, and whether a smaller (1) or a larger one (-1) takes something away."""
LENGTHS = ("maxLength", "minLength")
Way = Literal["sent", "answered"]


def contract(document: Any) -> Any:
    """A description without words: what programs depend on."""
    if isinstance(document, list):
        return [contract(item) for item in document]
    if not isinstance(document, dict):
        return document
    return {
        name: {key: contract(item) for key, item in value.items()} if name == "properties"
        else contract(value)
        for name, value in document.items()
        if name == "properties" or name not in WORDS
    }  # fmt: skip


def breaking(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Every change that a client of the old description would notice, a line each."""
    found = []
    for path, methods in old["paths"].items():
        for method in (m for m in METHODS if m in methods):
            where = f"{method.upper()} {path}"
            now = new["paths"].get(path, {}).get(method)
            if now is None:
                found.append(f"{where}: the operation is gone")
            else:
                found += _Operation(old, new, where).changes(methods[method], now)
    return list(dict.fromkeys(found))


class _Operation:
    """Compares one operation.

    Args:
        old: the whole old description.
        new: the whole new one.
        where: method and path.
    """

    def __init__(self, old: dict[str, Any], new: dict[str, Any], where: str) -> None:
        self._old, self._new, self._where = old, new, where
        self._seen: set[tuple[str, str, Way]] = set()

    def changes(self, was: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
        """The lines of the operation."""
        if was["operationId"] != now["operationId"]:
            yield f"{self._where}: operationId {was['operationId']} is now {now['operationId']}"
        yield from self._parameters(was.get("parameters", []), now.get("parameters", []))
        if "requestBody" in was:
            body = now.get("requestBody", {}).get("content", {})
            for kind, content in was["requestBody"]["content"].items():
                if kind not in body:
                    yield f"{self._where}: takes no {kind} any more"
                else:
                    schemas = content["schema"], body[kind]["schema"]
                    yield from self._schema(*schemas, "request", "sent")
        for status, answer in was["responses"].items():
            if status not in now["responses"]:
                yield f"{self._where}: status {status} is gone"
                continue
            contents = now["responses"][status].get("content", {})
            for kind, content in answer.get("content", {}).items():
                if kind not in contents:
                    yield f"{self._where}: {status} answers no {kind} any more"
                else:
                    schemas = content["schema"], contents[kind]["schema"]
                    yield from self._schema(*schemas, status, "answered")

    def _parameters(self, was: list[Any], now: list[Any]) -> Iterator[str]:
        known = {(item["in"], item["name"].casefold()): item for item in now}
        before = {(item["in"], item["name"].casefold()): item for item in was}
        for place, item in before.items():
            if place not in known:
                yield f"{self._where}: parameter {item['name']} is gone"
        for place, item in known.items():
            needed = before.get(place, {}).get("required", False)
            if item.get("required") and not needed:
                yield f"{self._where}: parameter {item['name']} is required now"

    def _schema(self, was: Any, now: Any, path: str, way: Way) -> Iterator[str]:
        pair = was.get("$ref"), now.get("$ref")
        if pair[0] and pair[1]:
            if (*pair, way) in self._seen:
                return
            self._seen.add((*pair, way))
        before, after = _Shape(self._old, was), _Shape(self._new, now)
        where = f"{self._where}: {path}"
        lost = before.types - after.types if way == "sent" else after.types - before.types
        if lost and before.types and after.types:
            verb = "takes no" if way == "sent" else "may be"
            yield f"{where} {verb} {', '.join(sorted(lost))} now"
        yield from (f"{where} {line}" for line in _limits(before, after, way))
        for name, item in before.properties.items():
            if name not in after.properties:
                if not after.open or way == "answered":
                    yield f"{where}.{name} is gone"
                continue
            yield from self._schema(item, after.properties[name], f"{path}.{name}", way)
        required = before.required, after.required
        if way == "sent":
            required = required[1], required[0]
        for name in sorted(required[0] - required[1]):
            word = "is required now" if way == "sent" else "may be left out now"
            yield f"{where}.{name} {word}"
        for inner in ("items", "additionalProperties"):
            parts = before.parts.get(inner), after.parts.get(inner)
            if parts[0] is not None and parts[1] is not None:
                yield from self._schema(*parts, f"{path}[]", way)


def _limits(before: _Shape, after: _Shape, way: Way) -> Iterator[str]:
    if way == "answered":
        return
    if before.words and (gone := before.words - after.words) and after.words:
        yield f"does not take {', '.join(sorted(gone))} any more"
    for name, sign in MOST:
        if name in LENGTHS and _spans(before.words, after.parts.get(name), sign):
            continue
        limits = before.parts.get(name), after.parts.get(name)
        if limits[1] is not None and (limits[0] is None or sign * limits[1] < sign * limits[0]):
            yield f"has the {name} {limits[1]} now"


def _spans(words: set[str], limit: int | None, sign: int) -> bool:
    """True where every word that was taken keeps within a limit of texts."""
    return (
        bool(words)
        and limit is not None
        and all(sign * len(word) <= sign * limit for word in words)
    )


class _Shape:
    """A schema with its references and alternatives taken together."""

    def __init__(self, document: dict[str, Any], schema: Any) -> None:
        self.types: set[str] = set()
        self.words: set[str] = set()
        self.properties: dict[str, Any] = {}
        self.required: set[str] = set()
        self.parts: dict[str, Any] = {}
        self.open = True
        self._add(document, schema)

    def _add(self, document: dict[str, Any], schema: Any) -> None:
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            self._add(document, document["components"]["schemas"][name])
        for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
            self._add(document, each)
        kinds = schema.get("type", [])
        self.types |= {kinds} if isinstance(kinds, str) else set(kinds)
        words = [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else [])]
        self.words |= set(map(str, words))
        self.properties |= schema.get("properties", {})
        self.required |= set(schema.get("required", ()))
        self.open = self.open and schema.get("additionalProperties", True) is not False
        for name in (*(name for name, _ in MOST), "items", "additionalProperties"):
            if name in schema and not isinstance(schema[name], bool):
                self.parts[name] = schema[name]


def released() -> dict[str, Any]:
    """The contract of every release, by version."""
    paths = sorted(GOLDEN.glob("openapi-*.json"))
    return {p.stem.partition("-")[2]: json.loads(p.read_text("utf-8")) for p in paths}


if __name__ == "__main__":
    described = json.loads(DOCUMENT.read_text("utf-8"))
    target = GOLDEN / f"openapi-{described['info']['version']}.json"
    if target.exists():
        raise SystemExit(f"{target} is there; contracts of releases are never rewritten")
    GOLDEN.mkdir(parents=True, exist_ok=True)
    text = json.dumps(contract(described), sort_keys=True, separators=(",", ":"))
    target.write_text(text.replace('"/v1', '\n"/v1') + "\n", "utf-8")
    sys.stdout.write(f"{target}\n")
