"""A history checker: what was seen of jobs, and whether it could be."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx

ORDER = {"queued": 0, "running": 1, "done": 2, "failed": 2, "cancelled": 2}


@dataclass
class History:
    """Every job that was acknowledged, by its key, and everything that was seen of it."""

    places: dict[str, str] = field(default_factory=dict)
    seen: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def acknowledged(self, key: str, answer: httpx.Response) -> None:
        """Note an acknowledgement: the same key is always the same job."""
        assert answer.status_code == 202, answer.text
        place = answer.headers["location"]
        assert self.places.setdefault(key, place) == place

    def look(self, client: httpx.Client) -> bool:
        """See every job once; whether all have ended."""
        ended = True
        for place in self.places.values():
            answer = client.get(place)
            assert answer.status_code == 200, f"{place} is lost: {answer.text}"
            job = answer.json()
            self.seen.setdefault(place, []).append(job)
            ended = ended and ORDER[job["state"]] == 2
        return ended

    def check(self) -> None:
        """No state goes back, no attempt is taken back, nothing changes after the end."""
        for place, jobs in self.seen.items():
            for before, after in pairwise(jobs):
                assert ORDER[before["state"]] <= ORDER[after["state"]], place
                assert before["attempt"] <= after["attempt"], place
                if ORDER[before["state"]] == 2:
                    assert before == after, place
