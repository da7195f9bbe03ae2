"""Whether the host's clock can be believed where something is to be deleted by its age."""

from __future__ import annotations

import math
import time

JUMP_S = 60.0
"""A clock that went so much faster or slower than time itself has jumped."""
DAY_S = 86_400.0
"""A clock that jumped is believed after so long: someone may set it right till then."""


class SteadyClock:
    """Watch over the host's clock.

    Args:
        doubtful: True if it seems to have jumped before this process began.
    """

    def __init__(self, doubtful: bool = False) -> None:
        self._ahead_s = time.time() - _elapsed_s()
        self._jumped_s = _elapsed_s() if doubtful else -math.inf

    def is_steady(self) -> bool:
        """Return True if the clock has not jumped for a day; to be asked now and then."""
        now_s = _elapsed_s()
        ahead_s = time.time() - now_s
        if abs(ahead_s - self._ahead_s) > JUMP_S:
            self._ahead_s, self._jumped_s = ahead_s, now_s
        return now_s - self._jumped_s >= DAY_S


def _elapsed_s() -> float:
    """Seconds since the machine's start, also those asleep."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)  # Linux alone has it
    return time.monotonic() if boot is None else time.clock_gettime(boot)
