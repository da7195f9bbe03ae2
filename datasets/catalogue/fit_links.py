"""Fit the ``curves`` of fabrics.toml to measured collectives; for maintainers.

    python -m shardwright.datasets.catalogue.fit_links nccl_half.parquet

prints the rows of every system in the table. Input columns: system, op_name, num_gpus,
message_size (in elements of 2 bytes) and latency (in milliseconds).

Method. A library switches protocol as messages grow: a small one has little set-up and poor
bandwidth, a bulk one the reverse. So seconds are modeled as the smaller of two lines,
``setup_s + wire_bytes / (bandwidth x efficiency)``, where wire bytes are those that one rank sends
(see :func:`wire_fraction`). For every split of the sizes, each side gets its own least squares fit
in relative error; the split with the smallest root mean square of the logarithmic error over all
sizes wins.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .fabric import wire_fraction

Array = NDArray[np.float64]
BYTES_PER_ELEMENT = 2
NOMINAL_BYTES_PER_S = {
    "a100_sxm": 300e9,
    "h100_sxm": 450e9,
    "h200_sxm": 450e9,
    "b200_sxm": 900e9,
    "gb200": 900e9,
    "gb300": 900e9,
    "l40s": 31.5e9,
    "rtx_pro_6000_server": 63e9,
}
"""One direction of one device's link, for the systems that the catalogue has."""
KIND_NAMES = {"alltoall": "all_to_all"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoRegimeFit:
    """Seconds as the smaller of two lines.

    Efficiencies are fractions of the nominal rate.
    """

    small_setup_s: float
    small_efficiency: float
    bulk_setup_s: float
    bulk_efficiency: float
    rms_log_error: float
    median_error: float
    largest_error: float


def fit_two_regimes(wire_bytes: Array, time_s: Array, nominal_bytes_per_s: float) -> TwoRegimeFit:
    """The pair of lines whose minimum fits the points best.

    Args:
        wire_bytes: bytes that one rank sends, ascending, at least six values.
        time_s: measured seconds at each.
        nominal_bytes_per_s: the rate that the efficiencies refer to.

    Raises:
        ValueError: fewer than six points.
    """
    best: TwoRegimeFit | None = None
    for split in range(3, len(wire_bytes) - 2):
        small = _line(wire_bytes[:split], time_s[:split])
        bulk = _line(wire_bytes[split:], time_s[split:])
        predicted = np.minimum(small[0] + small[1] * wire_bytes, bulk[0] + bulk[1] * wire_bytes)
        logarithmic = np.log(predicted / time_s)
        error = np.abs(predicted / time_s - 1)
        candidate = TwoRegimeFit(
            small_setup_s=small[0],
            small_efficiency=1 / (small[1] * nominal_bytes_per_s),
            bulk_setup_s=bulk[0],
            bulk_efficiency=1 / (bulk[1] * nominal_bytes_per_s),
            rms_log_error=float(np.sqrt(np.mean(logarithmic**2))),
            median_error=float(np.median(error)),
            largest_error=float(np.max(error)),
        )
        if best is None or candidate.rms_log_error < best.rms_log_error:
            best = candidate
    if best is None:
        raise ValueError(f"{len(wire_bytes)} points; a fit needs at least six")
    return best


def _line(x: Array, y: Array) -> tuple[float, float]:
    design = np.stack([1 / y, x / y], axis=1)
    (intercept, slope), *_ = np.linalg.lstsq(design, np.ones_like(y), rcond=None)
    if intercept < 0:
        return 0.0, float(np.mean(y / x))
    if slope <= 0:
        return float(np.mean(y)), 1e-30
    return float(intercept), float(slope)


def fit_table(path: Path) -> dict[str, list[tuple[str, int, TwoRegimeFit]]]:
    """Fits by system: the collective's kind, its ranks and the lines."""
    table = importlib.import_module("pyarrow.parquet").read_table(path).to_pydict()
    points: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    columns = ("system", "op_name", "num_gpus", "message_size", "latency")
    for system, op, ranks, elements, latency_ms in zip(*(table[c] for c in columns), strict=True):
        if system in NOMINAL_BYTES_PER_S:
            kind = KIND_NAMES.get(op, op)
            wire = wire_fraction(kind, ranks) * elements * BYTES_PER_ELEMENT
            points.setdefault((system, kind, ranks), []).append((wire, latency_ms * 1e-3))
    fits: dict[str, list[tuple[str, int, TwoRegimeFit]]] = {}
    for (system, kind, ranks), pairs in sorted(points.items()):
        x, y = np.array(sorted(pairs), dtype=np.float64).T
        lines = fit_two_regimes(x, y, NOMINAL_BYTES_PER_S[system])
        fits.setdefault(system, []).append((kind, ranks, lines))
    return fits


def main(arguments: list[str]) -> int:
    """Print the fits of the table named by the only argument."""
    for system, rows in fit_table(Path(arguments[0])).items():
        errors = [lines.median_error for _, _, lines in rows]
        worst = max(lines.largest_error for _, _, lines in rows)
        sys.stdout.write(
            f"# {system}: median of median errors {np.median(errors):.3f}, largest {worst:.2f}\n"
        )
        for kind, ranks, fit in rows:
            sys.stdout.write(
                f'  ["{kind}", {ranks}, {fit.small_setup_s:.2g}, {fit.small_efficiency:.3f}, '
                f"{fit.bulk_setup_s:.2g}, {fit.bulk_efficiency:.3f}],\n"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
