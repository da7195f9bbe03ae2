"""Questions about a found plan, priced as its search was."""

from __future__ import annotations

import json
from typing import Any

from ...problems import encode
from ..documents import pricing_of
from ..schema import DbRow


def with_search_pricing(checked: bytes, search: DbRow) -> bytes:
    """Complete a question with its search's stack, calibration and risk.

    They are written into the body, so that equal questions of other searches are others.

    Args:
        checked: what a child said of the question: a line of JSON, then its body.
        search: ``body`` and ``given_calibration`` of the job that found the plan.
    """
    head, _, text = checked.partition(b"\n")
    facts, question = json.loads(head), json.loads(text)
    search_body: dict[str, Any] = json.loads(search.body)
    if question.get("calibration") is None:
        facts["calibration"] = search.given_calibration
    for name, value in pricing_of(search_body).items():
        if value is not None and question.get(name) is None:
            question[name] = value
    return encode(facts) + b"\n" + encode(question)
