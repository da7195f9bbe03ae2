"""Schemas of the service's API in words and tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from typing import Any


def schema_sections(schemas: Mapping[str, Any]) -> str:
    """Sections of named schemas, each with the anchor that links to it name."""
    parts = "".join(_schema(name, schema) for name, schema in schemas.items())
    return f"<h2>Documents</h2>{parts}"


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    required = set(schema.get("required", ()))
    rows = [
        [
            f"<code>{escape(key)}</code>" + (" *" if key in required else ""),
            schema_text(value),
            prose(_description(value)),
        ]
        for key, value in schema.get("properties", {}).items()
    ]
    text = schema.get("description", "")
    heads: tuple[str, ...] = ("key", "value", "meaning")
    if not any(row[-1] for row in rows):
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    body = captioned_table("Keys; those with * are always there", heads, rows)
    plain = "" if rows else f"<p>{schema_text(schema)}</p>"
    return (
        f'<section class="card" id="schema-{escape(name)}"><h3>{escape(name)}</h3>'
        f"{f'<p>{prose(text)}</p>' if text else ''}{plain}{body}</section>"
    )


def prose(text: str) -> str:
    """A description as HTML, what stands in backticks as code."""
    return CODE.sub(r"<code>\1</code>", escape(" ".join(text.split())))


CODE = re.compile(r"``?([^`]+)``?")


def _description(schema: Mapping[str, Any]) -> str:
    own = str(schema.get("description", ""))
    inner = [str(each.get("description", "")) for each in schema.get("anyOf", ())]
    return own or next((text for text in inner if text), "")


def schema_text(schema: Mapping[str, Any]) -> str:
    """A schema in words, as HTML: ``whole number, 1 to 100``, a link to a named one."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return f'<a href="#schema-{escape(name)}">{escape(name)}</a>'
    for key, between in (("anyOf", " or "), ("oneOf", " or "), ("allOf", " and ")):
        if key in schema:
            inner = [part for part in schema[key] if part.get("type") != "null"]
            return between.join(dict.fromkeys(schema_text(part) for part in inner))
    if "enum" in schema:
        return ", ".join(f"<code>{escape(str(word))}</code>" for word in schema["enum"])
    if "const" in schema:
        return f"<code>{escape(str(schema['const']))}</code>"
    kind = schema.get("type", "")
    if isinstance(kind, list):
        return " or ".join(schema_text({**schema, "type": word}) for word in kind if word != "null")
    if kind == "array":
        return _list_text(schema)
    if kind == "object":
        return _object_text(schema)
    return escape(f"{KINDS.get(kind, kind or 'any value')}{_range_text(schema)}")


KINDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
}


def _object_text(schema: Mapping[str, Any]) -> str:
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping):
        return f"object of {schema_text(values)}"
    keys = ", ".join(f"<code>{escape(key)}</code>" for key in schema.get("properties", ()))
    return f"object: {keys}" if keys else "object"


def _list_text(schema: Mapping[str, Any]) -> str:
    if "prefixItems" in schema:
        return "list of " + ", ".join(schema_text(item) for item in schema["prefixItems"])
    items = schema.get("items")
    most = f", at most {schema['maxItems']}" if "maxItems" in schema else ""
    return f"list of {schema_text(items)}{most}" if items else f"list{most}"


def _range_text(schema: Mapping[str, Any]) -> str:
    """``, 1 to 100``, ``, above 0, at most 600``, or '' without limits."""
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f", {low:,g} to {high:,g}" if high < 2**24 else f", from {low:,g}"
    parts = [
        f"{word} {schema[key]:,g}"
        for key, word in (
            ("minimum", "from"),
            ("exclusiveMinimum", "above"),
            ("maximum", "at most"),
            ("exclusiveMaximum", "below"),
        )
        if key in schema and schema[key] < 2**24
    ]
    if "maxLength" in schema:
        parts.append(f"at most {schema['maxLength']} characters")
    return "".join(f", {part}" for part in parts)


def captioned_table(caption: str, heads: tuple[str, ...], rows: list[list[str]]) -> str:
    """Table whose cells are HTML already; '' without rows."""
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    body = "".join(
        "<tr>"
        + f'<th scope="row">{row[0]}</th>'
        + "".join(f'<td class="wordy">{cell}</td>' for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    label = escape(caption)
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{label}"><table>'
        f"<caption>{label}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
