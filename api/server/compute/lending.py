"""Calibrations lent from the database to a child.

A request is first computed without them. A child that meets the name of one stops and says which
(status 424, never seen outside), and is asked again with it. So only a request that names a
calibration costs a look into the database.
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

    Args:
        text: its JSON, None where there is none.
        names: the names of all calibrations of whoever asks.
    """
    return {"known": list(names), "found": text}


def lent_from(document: dict[str, Any] | None) -> LentCalibrations:
    """Read lent calibrations of a message; None-like if not looked up."""
    if document is None:
        return LentCalibrations(looked_up=False)
    text = document["found"]
    if text is None:
        return LentCalibrations(known=tuple(document["known"]))
    calibration = from_json(Calibration, text, CALIBRATION_SOURCE)
    return LentCalibrations(known=tuple(document["known"]), found={calibration.name: calibration})


def lent_text(name: str | None) -> str | None:
    """Return the JSON of a lent calibration by name; kept with jobs.

    Raises:
        WantedError: it is not known yet whether there is one.
    """
    lent = lent_calibration(name)
    return None if lent is None else canonical_json(lent)


def needed_name(answer: bytes) -> str:
    """The name that a child stopped at."""
    return str(json.loads(answer)["calibration"])
