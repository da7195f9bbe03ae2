"""The service's OpenAPI document, as committed.

``python -m shardwright.api.server.openapi.describe`` writes it. A test compares docs/openapi.json
with it, so that a change of the contract is seen as one.
"""

from __future__ import annotations

import json
import sys

from ..app import NO_URL, make_app
from ..jobs.service import JobRules


def document_text() -> str:
    """The document, its keys sorted."""
    return (
        json.dumps(
            make_app(jobs=JobRules(url=NO_URL, may_execute=True)).openapi(),
            indent=1,
            sort_keys=True,
            ensure_ascii=False,
        )
        + "\n"
    )


if __name__ == "__main__":
    sys.stdout.write(document_text())
