"""Hostile requests to every route: raw bytes, and schemathesis."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from harness.serving import quantile, scratch, serving, sqlite_in
from harness.shapes import EVERYTHING, Evidence, Item, Row, judged, unmeasured
from harness.work import Work
from service import hostile

REQUESTS, FULL_REQUESTS, TOGETHER = 8_000, 20_000, 2_000
EXAMPLES, FULL_EXAMPLES = 15, 40
"""Of schemathesis, for each operation."""
REJECT_S = 0.5
TOKEN = "0123456789abcdef-evidence"
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,ignored_auth"
"""Not use_after_free: a DELETE of a job cancels it, and its best plan is kept."""


def run(work: Work) -> Evidence:
    """Send all cases over all routes, mutated ones, then a stateful walk."""
    together = work.sized(TOGETHER, 300)
    requests = work.sized(REQUESTS, together, FULL_REQUESTS)
    firsts = [str(first) for first in range(0, requests, together)]
    pieces = work.pieces(firsts, lambda first: _sent(int(first), together, work.seed))
    walk = work.pieces(["schemathesis"], lambda _: _walked(work.sized(EXAMPLES, 4, FULL_EXAMPLES)))[
        0
    ]
    faults = [fault for piece in pieces for fault in piece["faults"]]
    slow = [seconds for piece in pieces for seconds in piece["slow"]]
    sent = sum(piece["sent"] for piece in pieces)
    largest = max(piece["largest"] for piece in pieces)
    rows = [
        judged(
            "faults of the service, undocumented statuses, answers that repeat what was sent",
            f"{len(faults)} of {sent:,} requests" + (f" ({faults[0]})" if faults else ""),
            f"0 of {requests:,}",
            not faults,
            faults=len(faults),
            requests=sent,
        ),
        judged("the largest reject", f"{largest} bytes", "≤ 8192", largest <= 8192, bytes=largest),
        judged(
            "seconds of a reject",
            f"p99 {quantile(slow, 0.99):.3f}, most {max(slow):.3f}",
            f"≤ {REJECT_S:g}",
            max(slow) <= REJECT_S,
            most_s=max(slow),
        ),
        _walk_row(walk),
    ]
    return Evidence(rows=rows)


def _sent(first: int, count: int, seed: int) -> dict[str, Any]:
    """Some requests, sequential, so that seconds are their own."""
    folder = scratch("hostile")
    faults, slow, largest = [], [], 0
    with serving(folder, *sqlite_in(folder), "--allow-execute") as service:
        every = list(hostile.sample(first + count, seed=seed))[first:]
        for name, request in every:
            start_s = time.perf_counter()
            reply = hostile.sent(service.address, request)
            seconds = time.perf_counter() - start_s
            if wrong := hostile.fault(request, reply):
                faults.append(f"{name}: {wrong}")
            if reply.status >= 400 and hostile.is_ended(request):
                slow.append(seconds)
                largest = max(largest, len(reply.body))
    return {"faults": faults, "slow": slow, "largest": largest, "sent": len(every)}


def _walked(examples: int) -> dict[str, Any]:
    """Schemathesis' own stateful run, with its checks of authorization."""
    program = Path(sys.executable).with_name("schemathesis")
    if not program.exists():
        return {"code": None, "said": "schemathesis is not installed"}
    folder = scratch("walk")
    (folder / "tokens").write_text(TOKEN)
    with serving(folder, *sqlite_in(folder), "--token-file", "tokens") as service:
        done = subprocess.run(
            [program, "run", f"{service.url}/openapi.json", "--url", service.url,
             "--header", f"Authorization: Bearer {TOKEN}", "--max-examples", str(examples),
             "--checks", CHECKS, "--request-timeout", "30", "--generation-deterministic",
             "--max-response-time", "30", "--no-color"],
            cwd=folder, capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONSAFEPATH": "1"},
        )  # fmt: skip
    output = (done.stdout + done.stderr)[-6000:]
    return {"code": done.returncode, "said": output}


def _walk_row(walk: dict[str, Any]) -> Row:
    name = "schemathesis: examples, coverage, fuzzing, stateful links, ignored tokens"
    if walk["code"] is None:
        return unmeasured(name, walk["said"])
    summary = re.findall(r"(\d+ generated[^\n]*|\d+ failures?)", walk["said"])
    figure = "; ".join(summary) or f"exit code {walk['code']}"
    return judged(name, figure, "no failure", walk["code"] == 0)


ITEM = Item(
    name="service_hostile",
    shows="Requests that nobody means well by cost the service one short refusal each.",
    target="0 faults and undocumented statuses of 8,000; each reject ≤ 0.5 s and ≤ 8 KiB.",
    full_target="0 faults and undocumented statuses of 20,000; each reject ≤ 0.5 s and ≤ 8 KiB.",
    run=run,
    reads=(*EVERYTHING, "docs/openapi.json", "benchmarks/harness/serving.py",
           "tests/support/service/hostile.py", "tests/support/service/hostile_requests.tsv",
           "tests/support/service/services.py"),
    timed=True,
)  # fmt: skip
