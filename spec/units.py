"""Text of units.

SI inside, human units only in typed and printed text.
"""

from __future__ import annotations

GIB = 1024**3
MIB = 1024**2
SECONDS_PER_HOUR = 3600.0


def format_number(number: float, digits: int = 4) -> str:
    """A number to ``digits`` significant digits, whole above them: ``10610``, not ``1.061e+04``."""
    return f"{number:.0f}" if abs(number) >= 10**digits - 0.5 else f"{number:.{digits}g}"


def format_bytes(amount_bytes: float) -> str:
    """Bytes as ``71.2 GiB``, with three significant digits."""
    size = float(amount_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024 or unit == "TiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{format_number(size, 3)} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def format_seconds(time_s: float) -> str:
    """Seconds as ``13.8 s``, ``41.2 ms`` or ``7.5 us``: three significant digits."""
    rounded_s = abs(float(f"{time_s:.3g}"))  # rounding up to a unit shows that unit
    if rounded_s >= 1 or time_s == 0:
        return f"{time_s:.3g} s" if rounded_s < 1000 else f"{time_s:.0f} s"
    if rounded_s >= 1e-3:
        return f"{time_s * 1e3:.3g} ms"
    return f"{time_s * 1e6:.3g} us"


def format_duration(time_s: float) -> str:
    """A long time as ``12.4 days``, ``31.5 hours`` or ``47 minutes``, a short one in seconds."""
    for unit, scale in (("days", 48.0), ("hours", 2.0), ("minutes", 1 / 30)):
        if time_s >= scale * SECONDS_PER_HOUR:
            length_s = {"days": 24.0, "hours": 1.0}.get(unit, 1 / 60) * SECONDS_PER_HOUR
            return f"{format_number(time_s / length_s, 3)} {unit}"
    return format_seconds(time_s)


def format_count(number: float) -> str:
    """Parameters or tokens as ``70.6 B``."""
    for unit, scale in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= scale:
            return f"{format_number(number / scale, 3)} {unit}"
    return f"{number:.0f}"
