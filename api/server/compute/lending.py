"""Calibrations lent from the database to a child.

A request is first computed without them. A child that meets a calibration's name stops and reports
it (status 424, never seen outside), and is called again with it. So only requests that name one
cost a database lookup.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ....spec.cluster.calibration import Calibration
from ....spec.codec import canonical_json, from_json
from ...problem.stored_calibrations import LentCalibrations, lent_calibration

CALIBRATION_NEEDED = 424
CALIBRATION_SOURCE = "a stored calibration"


def lent_document(text: str | None, names: Sequence[str] = ()) -> dict[str, Any]:
    """Build the message of a lent calibration.

    ``names`` are those of all the requester's calibrations.
    """
    return {"known": list(names), "found": text}


def lent_from(document: dict[str, Any] | None) -> LentCalibrations:
    """Read a message's lent calibrations, with none looked up if absent."""
    if document is None:
        return LentCalibrations(looked_up=False)
    text = document["found"]
    if text is None:
        return LentCalibrations(names=tuple(document["known"]))
    calibration = from_json(Calibration, text, CALIBRATION_SOURCE)
    return LentCalibrations(names=tuple(document["known"]), by_name={calibration.name: calibration})


def lent_text(name: str | None) -> str | None:
    """Return the JSON of a lent calibration by name; kept with jobs.

    Raises:
        WantedError: it is not looked up yet.
    """
    lent = lent_calibration(name)
    return None if lent is None else canonical_json(lent)


def needed_name(answer: bytes) -> str:
    """The name that a child stopped at."""
    return str(json.loads(answer)["calibration"])
