"""A plan's page in one file that fetches nothing.

Its content policy admits only the style and script whose hashes it names; data lies in a block that
browsers do not run, and only ever becomes text.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import lru_cache
from importlib.resources import files
from typing import Any

from .text import escape

SCRIPTS = ("dom.js", "report.js", "run.js", "timeline.js", "file.js")
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main id="page"><h1>Shardwright</h1><p>{title}</p><p>{shape}</p>
<noscript><p>The tables and the timeline need scripts; this file loads none from elsewhere.</p></noscript>
</main>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""  # noqa: E501 - a page


def page_file(
    view: dict[str, Any],
    plan: dict[str, Any],
    trace: dict[str, Any] | str,
    run: dict[str, Any] | None = None,
) -> str:
    """Build the page.

    ``view`` is of :func:`report_view.report_view`, ``plan`` the document to download, ``trace`` the
    step in Perfetto's format or why there is none, ``run`` of :mod:`run_view`.
    """
    style, script = web_text("style.css"), "\n".join(map(web_text, SCRIPTS))
    content: dict[str, Any] = {"trace": trace} if isinstance(trace, dict) else {"no_trace": trace}
    if run is not None:
        content["run"] = run
    data = json.dumps({"view": view, "plan": plan, **content}, separators=(",", ":"))
    return PAGE.format(
        policy=f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'",
        title=escape(view["title"]),
        shape=escape(view["shape"]),
        style=style,
        script=script,
        data=data.replace("<", "\\u003c"),  # no text in it ends the block
    )


@lru_cache
def web_text(name: str) -> str:
    """A file of the page, as shipped."""
    return files("shardwright.api").joinpath("web", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
