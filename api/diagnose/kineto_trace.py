"""A profiler's trace of one rank (Kineto, Chrome format), as seconds of a step by kind of work.

Kernels that run are computation or communication; communication counts where no computation runs
beside it, and holds the waiting for other ranks too, for its kernels spin until those come. What is
left of the step the device is idle.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...spec.errors import InputError
from ...spec.report.report import Prediction

FLAG = "--trace"
MOST_BYTES = 2**30
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
STEP_MARK = re.compile(r"ProfilerStep#\d+")
COMMUNICATION = re.compile(r"nccl|rccl|nvshmem|all_?reduce_kernel", re.IGNORECASE)
ATTENTION = re.compile(r"flash|fmha|attention|softmax_warp", re.IGNORECASE)
PRODUCTS = re.compile(r"gemm|nvjet|cutlass|cublas|matmul|wgrad|dgrad|splitkreduce", re.IGNORECASE)
ALLOWED = "a trace of torch.profiler with kernels: export_chrome_trace with ProfilerActivity.CUDA"
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedStep:
    """Mean seconds of a step of one rank.

    ``computation_s``, ``communication_s`` (that no computation hides, waiting included) and
    ``idle_s`` add up to ``step_s``. Of the kernels that compute, ``matmul_s``, ``attention_s`` and
    ``other_s`` are busy seconds, which overlap where streams do.
    """

    steps: int
    step_s: float
    computation_s: float
    communication_s: float
    idle_s: float
    matmul_s: float
    attention_s: float
    other_s: float

    def to_document(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self)


def predicted_parts(prediction: Prediction) -> dict[str, float]:
    """A prediction's seconds in the three parts of a traced step."""
    parts = {"computation": 0.0, "communication": 0.0, "idle": 0.0}
    for term, seconds in prediction.breakdown_s.items():
        waits = term.startswith("exposed_") or term == "bubble"
        part = "communication" if waits else "idle" if term == "host" else "computation"
        parts[part] += seconds
    return parts


def read_trace(path: str) -> TracedStep:
    """Read a trace.

    Raises:
        InputError: no readable trace, or none with steps and kernels of a device.
    """
    return trace_from(_document(path), path)


def trace_from(document: Any, where: str) -> TracedStep:
    """Read a trace's document; ``where`` names it in errors.

    Raises:
        InputError: none with steps and kernels of a device.
    """
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):
        raise InputError(FLAG, where, ALLOWED)
    timed = [event for event in events if isinstance(event, dict) and event.get("ph") == "X"]
    windows = _windows(timed)
    kernels = [event for event in timed if str(event.get("cat", "")).casefold() in ON_DEVICE]
    if not kernels:
        raise InputError(FLAG, f"{where}, without kernels of a device", ALLOWED)
    if not windows:
        allowed = "steps marked by profiler.step(): ProfilerStep#N"
        raise InputError(FLAG, f"{where}, without steps", allowed)
    return _traced(kernels, windows)


def _document(path: str) -> Any:
    file = Path(path).expanduser()
    try:
        if file.stat().st_size > MOST_BYTES:
            raise InputError(FLAG, path, f"a trace of at most {MOST_BYTES} bytes")
        opened = gzip.open if file.suffix == ".gz" else open
        with opened(file, "rb") as stream:
            text = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(FLAG, path, f"a file that can be read ({error.strerror})") from None
    if len(text) > MOST_BYTES:
        raise InputError(FLAG, path, f"a trace of at most {MOST_BYTES} bytes")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(FLAG, path, ALLOWED) from None


def _interval(event: Mapping[str, Any]) -> Interval:
    """Start and end of an event in seconds.

    Raises:
        InputError: no numbers.
    """
    start, length = event.get("ts"), event.get("dur")
    if not isinstance(start, (int, float)) or not isinstance(length, (int, float)):
        raise InputError(FLAG, f"an event at {start} of {length}", "events with ts and dur")
    return start / 1e6, (start + length) / 1e6


def _windows(events: Iterable[Mapping[str, Any]]) -> list[Interval]:
    marks = {str(e.get("name")): e for e in events if STEP_MARK.fullmatch(str(e.get("name", "")))}
    return sorted(_interval(event) for event in marks.values())


def _traced(kernels: Sequence[Mapping[str, Any]], windows: Sequence[Interval]) -> TracedStep:
    start, end = windows[0][0], max(stop for _, stop in windows)
    kinds: dict[str, list[Interval]] = {"communication": [], "matmul": [], "attention": [],
                                        "other": []}  # fmt: skip
    for event in kernels:
        first, last = _interval(event)
        if last > start and first < end:
            kinds[_kind(str(event.get("name", "")))].append((max(first, start), min(last, end)))
    computing = _merged([x for kind, found in kinds.items() if kind != "communication"
                         for x in found])  # fmt: skip
    busy = _merged([*computing, *kinds["communication"]])
    steps, span_s = len(windows), end - start
    computing_s, busy_s = _length(computing), _length(busy)
    return TracedStep(
        steps=steps,
        step_s=span_s / steps,
        computation_s=computing_s / steps,
        communication_s=(busy_s - computing_s) / steps,
        idle_s=(span_s - busy_s) / steps,
        matmul_s=_length(kinds["matmul"]) / steps,
        attention_s=_length(kinds["attention"]) / steps,
        other_s=_length(kinds["other"]) / steps,
    )


def _kind(name: str) -> str:
    if COMMUNICATION.search(name):
        return "communication"
    if ATTENTION.search(name):
        return "attention"
    return "matmul" if PRODUCTS.search(name) else "other"


def _merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Disjoint intervals of the same union."""
    made: list[Interval] = []
    for first, last in sorted(intervals):
        if made and first <= made[-1][1]:
            made[-1] = (made[-1][0], max(made[-1][1], last))
        else:
            made.append((first, last))
    return made


def _length(intervals: Iterable[Interval]) -> float:
    return sum(last - first for first, last in intervals)
