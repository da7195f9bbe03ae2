"""The committed description of the service is what it says of itself."""

from __future__ import annotations

import json
from pathlib import Path

from shardwright.api.server.describe import document_text

DOCUMENT = Path(__file__).parents[2] / "docs" / "openapi.json"


def test_the_committed_document_is_the_services_own() -> None:
    same = DOCUMENT.read_text(encoding="utf-8") == document_text()
    assert same, "python -m shardwright.api.server.describe > docs/openapi.json, and look at it"


def test_no_schema_of_the_frameworks_own_is_in_it() -> None:
    names = json.loads(DOCUMENT.read_text(encoding="utf-8"))["components"]["schemas"]
    assert not {"HTTPValidationError", "ValidationError"} & set(names)
