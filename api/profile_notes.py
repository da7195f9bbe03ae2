"""What a prediction for this machine's cores has to say of the stored profiles."""

from __future__ import annotations

from ..profiler.store import shelf
from ..spec.report import Assumption


def profile_notes(ranks: int, found: bool) -> list[Assumption]:
    """Which stored profiles were skipped, and why none is used where none is.

    Args:
        ranks: how many ranks work at once.
        found: whether a profile of so many ranks is used.
    """
    stored = shelf(ranks)
    notes: list[Assumption] = []
    if stored.unreadable:
        why = "stored profiles that could not be read were skipped"
        value = "; ".join(stored.unreadable)
        notes.append(Assumption(path="calibration.skipped", value=value, why=why))
    if found:
        return notes
    why = "this machine was not profiled (plan profile); rates are analytic"
    if stored.other_ranks:
        counts = " and ".join(str(count) for count in stored.other_ranks)
        why = (
            f"this machine was measured with {counts} ranks at work, not with {ranks} "
            f"(plan profile --cluster local:{ranks}); rates are analytic"
        )
    return [*notes, Assumption(path="calibration", value="none", why=why)]
