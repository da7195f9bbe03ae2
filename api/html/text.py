"""Text of documents inside HTML and SVG."""

from __future__ import annotations

import html

from ...spec.errors import printable


def escape(text: str) -> str:
    """The text as HTML; characters that would move or turn what follows are shown escaped."""
    return html.escape(printable(text))


def unbroken(text: str) -> str:
    """The text as HTML whose spaces break no line."""
    return escape(text).replace(" ", "&nbsp;")
