"""The API's page: what the description says, closed, escaped, behind the token."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from shardwright.api.html.openapi_page import METHODS, openapi_page
from shardwright.api.html.openapi_schemas import schema_text
from shardwright.api.server.page import FILES, POLICY

DOCUMENT = json.loads(
    (Path(__file__).parents[3] / "docs" / "openapi.json").read_text(encoding="utf-8")
)
ADDRESS = "http://127.0.0.1:8642"
PAGE = openapi_page(DOCUMENT, ADDRESS)
MOST_BYTES = 250_000


def test_the_service_shows_it(service: Any) -> None:
    answer = httpx.get(service.url + "/docs")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert answer.headers["content-security-policy"] == POLICY
    assert f"curl -s {service.url}/v1/plans" in answer.text
    known = {"If-None-Match": answer.headers["etag"]}
    assert httpx.get(service.url + "/docs", headers=known).status_code == 304
    assert "GET /docs" in httpx.get(service.url + "/nothing").json()["detail"]


def test_it_is_small_and_closed() -> None:
    assert len(PAGE.encode()) <= MOST_BYTES
    assert not re.search(r"<script|<style| style=| on[a-z]+=", PAGE)
    named = set(re.findall(r'(?:src|href)="([^"#]+)"', PAGE))
    assert named == {"/", "/openapi.json", "/page/icon.svg", "/page/style.css", "/page/app.css"}
    assert {name.removeprefix("/page/") for name in named if "page" in name} <= set(FILES)


def test_every_operation_and_document_is_on_it() -> None:
    places = re.findall(r'id="([^"]+)"', PAGE)
    assert len(places) == len(set(places))
    for path, methods in DOCUMENT["paths"].items():
        for method in set(METHODS) & set(methods):
            assert methods[method]["operationId"] in places
            assert f"<code>{path}</code>" in PAGE
    schemas = DOCUMENT["components"]["schemas"]
    assert {f"schema-{name}" for name in schemas} <= set(places)
    for schema in schemas.values():
        assert all(f"<code>{key}</code>" in PAGE for key in schema.get("properties", ()))
    assert set(re.findall(r'href="#([^"]+)"', PAGE)) <= set(places)


def test_markup_in_a_description_is_text() -> None:
    marked = copy.deepcopy(DOCUMENT)
    mark = "<img src=x onerror=alert(1)>"
    marked["paths"]["/v1/plans"]["post"]["summary"] = mark
    marked["components"]["schemas"]["Plan"]["description"] = f"`{mark}`"
    marked["components"]["schemas"]["Status"]["properties"][mark] = {"enum": [mark]}
    text = openapi_page(marked, f"http://{mark}")
    assert "<img src=x" not in text
    assert text.count("&lt;img src=x") == 5


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 100}, "whole number, 1 to 100"),
        ({"type": "integer", "minimum": 1, "maximum": 2**40}, "whole number, from 1"),
        ({"type": "number", "exclusiveMinimum": 0}, "number, above 0"),
        ({"type": ["string", "null"]}, "text"),
        ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, "true or false"),
        ({"enum": ["a", "b"]}, "<code>a</code>, <code>b</code>"),
        ({"type": "array", "items": {"type": "string"}, "maxItems": 2}, "list of text, at most 2"),
        ({"type": "object", "properties": {"a": {}}}, "object: <code>a</code>"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "object of number"),
        ({"$ref": "#/components/schemas/Job"}, '<a href="#schema-Job">Job</a>'),
        ({}, "any value"),
    ],
)
def test_a_schema_in_words(schema: dict[str, Any], words: str) -> None:
    assert schema_text(schema) == words
