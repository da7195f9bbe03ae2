"""The service's API as one HTML page, without scripts, escaped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from .openapi_schemas import captioned_table, prose, schema_sections, schema_text

Document = Mapping[str, Any]
METHODS = ("get", "post", "put", "patch", "delete")
GROUPS = (
    ("/v1/plans", "Plans"),
    ("/v1/simulations", "Simulations"),
    ("/v1/what-ifs", "What-ifs"),
    ("/v1/runs", "Runs"),
    ("/v1/profiles", "Profiles"),
    ("/v1/", "Catalogue"),
    ("/", "Service"),
)
"""Operations by the start of their path; the first that fits."""
INTRODUCTION = """<section class="card" id="first"><h2>First request</h2>
<pre tabindex="0"><code>curl -s {address}/v1/plans -H 'Content-Type: application/json' \\
  -H 'Prefer: wait=30' -H 'Authorization: Bearer TOKEN' \\
  -d '{body}'</code></pre>
<p>Where the service was started with tokens, every path but <code>/healthz</code> and
<code>/readyz</code> needs one. Times are seconds, sizes bytes, shares fractions. Errors are
<a href="#schema-Problem">problems</a> (RFC 9457): what is wrong, where, what is allowed, what is
nearest.
The same as a document: <a href="/openapi.json">/openapi.json</a>.</p></section>"""
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Shardwright API {version}</title>
<link rel="icon" type="image/svg+xml" href="/page/icon.svg">
<link rel="stylesheet" href="/page/style.css">
<link rel="stylesheet" href="/page/app.css">
</head>
<body>
<a class="skip" href="#main">Skip to the operations</a>
<header class="top">
<img src="/page/icon.svg" width="28" height="28" alt="">
<h1>Shardwright API</h1>
<p>version {version}; <a href="/">the page for people</a></p>
</header>
<div class="bench">
<nav class="contents card" aria-label="Operations">{contents}</nav>
<main id="main" class="stack" tabindex="-1">
{introduction}
{operations}
{problems}
{schemas}
</main>
</div>
</body>
</html>
"""


def openapi_page(document: Document, address: str) -> str:
    """Build the page.

    Args:
        document: an OpenAPI 3.1 description.
        address: of the service, for the example of a request.
    """
    operations = list(_operations(document))
    grouped = [(name, [item for item in operations if item["group"] == name]) for _, name in GROUPS]
    example = _body_example(document, "createPlan")
    return PAGE.format(
        version=escape(document["info"]["version"]),
        contents="".join(_contents(name, items) for name, items in grouped if items),
        introduction=INTRODUCTION.format(
            address=escape(address), body=escape(json.dumps(example), quote=False)
        ),
        operations="".join(_group(name, items) for name, items in grouped if items),
        problems=_problems(operations),
        schemas=schema_sections(document["components"]["schemas"]),
    )


def _operations(document: Document) -> Iterator[dict[str, Any]]:
    for path, methods in document["paths"].items():
        group = next(name for start, name in GROUPS if path.startswith(start))
        for method in METHODS:
            if method in methods:
                yield {**methods[method], "path": path, "method": method, "group": group}


def _body_example(document: Document, operation_id: str) -> Any:
    found = next(item for item in _operations(document) if item["operationId"] == operation_id)
    return found["requestBody"]["content"]["application/json"]["example"]


def _contents(name: str, items: list[dict[str, Any]]) -> str:
    links = "".join(
        f'<li><a href="#{escape(item["operationId"])}">{_method(item)} '
        f"<code>{escape(item['path'])}</code></a></li>"
        for item in items
    )
    return f"<h2>{escape(name)}</h2><ul>{links}</ul>"


def _method(item: Mapping[str, Any]) -> str:
    return f'<b class="method {item["method"]}">{item["method"].upper()}</b>'


def _group(name: str, items: list[dict[str, Any]]) -> str:
    return f"<h2>{escape(name)}</h2>" + "".join(_operation(item) for item in items)


def _operation(item: dict[str, Any]) -> str:
    described = item.get("description", "")
    parts = [
        f"<h3>{_method(item)} <code>{escape(item['path'])}</code></h3>",
        f"<p>{prose(item.get('summary', ''))}</p>",
        f'<p class="note">{prose(described)}</p>' if described else "",
        _parameters(item.get("parameters", [])),
        _request(item.get("requestBody")),
        _answers(item["responses"]),
    ]
    return f'<section class="card" id="{escape(item["operationId"])}">{"".join(parts)}</section>'


def _parameters(parameters: list[dict[str, Any]]) -> str:
    rows = [
        [
            f"<code>{escape(p['name'])}</code>",
            escape(p["in"]),
            schema_text(p["schema"]),
            prose(p.get("description", "")),
        ]
        for p in parameters
    ]
    return captioned_table("Parameters", ("name", "in", "value", "meaning"), rows)


def _request(body: dict[str, Any] | None) -> str:
    if body is None:
        return ""
    content = body["content"]["application/json"]
    return f"<p>Body: {schema_text(content['schema'])}</p>" + _example(content)


def _answers(responses: Mapping[str, Any]) -> str:
    rows, examples = [], []
    for status, answer in responses.items():
        if _is_problem(status):
            continue
        kinds = [
            f"{schema_text(content['schema'])} ({escape(kind)})"
            for kind, content in answer.get("content", {}).items()
        ]
        rows.append([escape(status), prose(answer["description"]), ", ".join(kinds)])
        examples += [_example(c, f"{status} example") for c in answer.get("content", {}).values()]
    wrong = ", ".join(
        f'<a href="#status-{escape(s)}">{escape(s)}</a>' for s in responses if _is_problem(s)
    )
    table = captioned_table("Answers", ("status", "meaning", "content"), rows)
    return table + "".join(examples) + f'<p class="note">Problems: {wrong}</p>'


def _is_problem(status: str) -> bool:
    return status[0] in "45"


def _example(content: Mapping[str, Any], title: str = "Example") -> str:
    if "example" not in content:
        return ""
    example = content["example"]
    text = example if isinstance(example, str) else json.dumps(example, indent=1)
    shown = f'<pre tabindex="0"><code>{escape(text)}</code></pre>'
    return f"<details><summary>{escape(title)}</summary>{shown}</details>"


def _problems(operations: list[dict[str, Any]]) -> str:
    said = {
        status: answer["description"]
        for item in operations
        for status, answer in item["responses"].items()
        if _is_problem(status)
    }
    rows = [[f'<span id="status-{s}">{s}</span>', escape(text)] for s, text in sorted(said.items())]
    table = captioned_table("What a request can end with", ("status", "meaning"), rows)
    return f'<h2 id="problems">Problems</h2><section class="card">{table}</section>'
