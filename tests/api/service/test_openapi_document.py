"""The committed description of the service is what it says of itself."""

from __future__ import annotations

import difflib
import json
from pathlib import Path

from shardwright.api.server.openapi.describe import document_text

DOCUMENT = Path(__file__).parents[3] / "docs" / "openapi.json"


def test_the_committed_document_is_the_services_own() -> None:
    texts = (DOCUMENT.read_text(encoding="utf-8"), document_text())
    apart = list(difflib.unified_diff(*(text.splitlines() for text in texts), n=0, lineterm=""))
    how = "python -m shardwright.api.server.openapi.describe > docs/openapi.json, and look at it"
    assert not apart, "\n".join([how, *apart[:20]])


def test_no_schema_of_the_frameworks_own_is_in_it() -> None:
    names = json.loads(DOCUMENT.read_text(encoding="utf-8"))["components"]["schemas"]
    assert not {"HTTPValidationError", "ValidationError"} & set(names)
