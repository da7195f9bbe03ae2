"""Jobs as JSON; stored answers are embedded unparsed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ..problems import encode
from .ids import cursor_of
from .schema import DbRow

PATHS = {
    "plan": "/v1/plans",
    "what-if": "/v1/what-ifs",
    "size": "/v1/sizes",
    "run": "/v1/runs",
}


def state_of(row: DbRow) -> str:
    """``queued``, ``running``, ``done``, ``failed`` or ``cancelled``."""
    if row.outcome is not None:
        return str(row.outcome)
    return "queued" if row.started_ms is None else "running"


def path_of(kind: str, job_id: str) -> str:
    """Return the path of a job."""
    return f"{PATHS[kind]}/{job_id}"


def job_summary(row: DbRow) -> dict[str, Any]:
    """Summarize a job for a list."""
    return {
        "id": row.id,
        "kind": row.kind,
        "state": state_of(row),
        "attempt": row.attempt,
        "deadline_s": row.deadline_s,
        "created_at": _time_text(row.created_ms),
        "started_at": _time_text(row.started_ms),
        "finished_at": _time_text(row.finished_ms),
        "cancel_asked_at": _time_text(row.cancel_ms),
    }


def job_bytes(row: DbRow, event: str | None, answer: bool = True) -> bytes:
    """The whole document of a job.

    ``event`` is the last on its stream; ``answer`` is False for the response to a new job.
    """
    parts = encode(job_summary(row))[:-1]
    progress = _progress(event)
    parts += b', "progress": ' + (b"null" if progress is None else encode(progress))
    if answer:
        best = None if row.best is None else row.best.encode()
        parts += b', "asked": ' + encode(_request_document(row))
        parts += b', "best": ' + (best or b"null")
        kept = None if row.answer is None else row.answer.encode()
        well = row.outcome in ("done", "cancelled")
        parts += b', "answer": ' + (kept if well and kept else b"null")
        parts += b', "problem": ' + (kept if not well and kept else b"null")
    return parts + b"}"


def _progress(event: str | None) -> dict[str, Any] | None:
    if event is None:
        return None
    data: dict[str, Any] = json.loads(event)["data"]
    return {name: value for name, value in data.items() if name not in ("plan", "row", "points")}


def page_bytes(rows: Sequence[DbRow], limit: int) -> bytes:
    """Encode a page of a list.

    ``rows`` has one more than ``limit`` if there is a next page.
    """
    more = len(rows) > limit
    items = [{**job_summary(row), "asked": _request_document(row)} for row in rows[:limit]]
    return encode({"items": items, "next_cursor": cursor_of(rows[limit - 1].id) if more else None})


def _request_document(row: DbRow) -> dict[str, Any] | None:
    if row.kind != "plan":
        return None
    body = {} if row.body is None else json.loads(row.body)  # ours: a child has written it
    workload = body.get("workload", {})
    named = {name: body.get(name) for name in ("model", "cluster")}
    texts = {name: text if isinstance(text, str) else None for name, text in named.items()}
    sizes = {name: workload.get(name) for name in ("global_batch", "seq_len")}
    return {**texts, **sizes, **pricing_of(body), **_wishes(body)}


WORKLOAD_WISHES = ("global_batch_tokens", "dtype", "optimizer", "trainable")
CONSTRAINT_WISHES = ("memory_gib", "host_gib", "nvme_gib", "pins", "framework")


def _wishes(body: Mapping[str, Any]) -> dict[str, Any]:
    """What tells a question from others of the same model, cluster and size."""
    limits, model = body.get("constraints") or {}, body.get("model")
    name = model.get("name") if isinstance(model, Mapping) else None
    return {
        "model_name": name[:200] if isinstance(name, str) else None,
        "objective": body.get("objective"),
        "prefer": body.get("prefer"),
        **{key: body.get("workload", {}).get(key) for key in WORKLOAD_WISHES},
        **{key: limits.get(key) for key in CONSTRAINT_WISHES},
    }


def pricing_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a search's stack, calibration and risk; None for defaults."""
    risk = (body.get("constraints") or {}).get("oom_risk")
    return {"stack": body.get("stack"), "calibration": body.get("calibration"), "oom_risk": risk}


def _time_text(at_ms: int | None) -> str | None:
    if at_ms is None:
        return None
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
