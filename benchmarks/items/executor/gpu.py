"""The newest committed report of ``make gpu-report``, and the gaps.

A report is a file of ``benchmarks/gpu/reports/``; where there is none, every row that one would
judge is named, so that nobody takes it for shown.
"""

from __future__ import annotations

from gpu.entry import FULL, unjudged_families
from gpu.results import newest_report, to_results
from gpu.stage import stages
from harness.shapes import SPEC, Evidence, Item
from harness.work import Work


def run(work: Work) -> Evidence:
    """Read the report; nothing is measured here."""
    path = newest_report()
    work.say("nothing of this is measured here" + ("" if path is None else f"; shows {path.name}"))
    claims = [(claim.name, claim.target) for stage in stages() for claim in stage.claims]
    return to_results(path, claims, unjudged_families(FULL))


ITEM = Item(
    name="gpu",
    shows="What `make gpu-report` measured on a GPU, and what needs several.",
    target="those of the rows.",
    run=run,
    reads=(*SPEC, "benchmarks/gpu"),
)
