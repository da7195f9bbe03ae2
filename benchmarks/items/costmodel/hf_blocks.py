"""Lowered layers against transformers blocks, differences listed by name."""

from __future__ import annotations

import itertools
from typing import Any, get_args

from harness.shapes import PRICING, Evidence, Item, Table, judged, reported
from harness.work import Work
from hf.hf_cases import CASES

from shardwright.spec.choices import AttentionImpl

LARGEST_UNLISTED = 0.01


def run(work: Work) -> Evidence:
    """Trace each block forward and backward, by dtype and attention."""
    names = [
        "/".join((case.name, attention, dtype))
        for case in CASES
        for attention, dtype in itertools.product(case.attentions, ("fp32", "bf16"))
    ]
    names = names[: work.sized(len(names), 6)]
    blocks = dict(zip(names, work.pieces(names, _compared), strict=True))
    apart = [name for name, piece in blocks.items() if any(piece["flops_apart"])]
    worst = max(abs(_unlisted(piece)) for piece in blocks.values())
    exact = sum(_unlisted(piece) == 0 for piece in blocks.values())
    listed = sum(x["library_bytes"] for piece in blocks.values() for x in piece["listed"])
    total = sum(piece["saved_bytes"] for piece in blocks.values())
    rows = [
        judged(
            "runs whose forward or backward FLOPs differ from torch's counter",
            f"{len(apart)} of {len(blocks)}" + (f" ({', '.join(apart)})" if apart else ""),
            "0",
            not apart,
            runs=len(blocks),
            apart=len(apart),
        ),
        judged(
            "saved bytes apart from the trace, the listed differences aside",
            f"largest {worst:.2%}; none at all in {exact} of {len(blocks)} runs",
            f"at most {LARGEST_UNLISTED:.0%}",
            worst <= LARGEST_UNLISTED,
            largest=worst,
            exact=exact,
        ),
        reported(
            "saved bytes that a listed difference explains",
            f"{listed / total:.1%} of all",
            share=listed / total,
        ),
    ]
    return Evidence(rows=rows, tables=[_blocks(blocks), _differences(blocks)])


def _compared(name: str) -> dict[str, Any]:
    from hf.hf_blocks import block_trace, kept_bytes, lowered_block
    from hf.hf_differences import listed_differences

    case_name, attention_name, dtype = name.split("/")
    case = next(case for case in CASES if case.name == case_name)
    attention = next(x for x in get_args(AttentionImpl) if x == attention_name)
    trace, lowered = block_trace(case.name, attention, dtype), lowered_block(case, attention, dtype)
    listed, rest = listed_differences(trace, case.name, attention, dtype)
    flops = (lowered.forward.flops, lowered.backward.flops)
    return {
        "flops": flops,
        "flops_apart": (flops[0] - trace.forward_flops, flops[1] - trace.backward_flops),
        "saved_bytes": trace.saved_bytes,
        "our_bytes": kept_bytes(lowered),
        "rest_bytes": sum(item.size_bytes for item in rest),
        "listed": [item._asdict() for item in listed],
    }


def _unlisted(piece: dict[str, Any]) -> float:
    """Unexplained share of the bytes that the library saves."""
    ours = piece["our_bytes"] - sum(item["our_bytes"] for item in piece["listed"])
    return float((ours - piece["rest_bytes"]) / piece["saved_bytes"])


def _blocks(blocks: dict[str, dict[str, Any]]) -> Table:
    rows = []
    for name, piece in blocks.items():
        flops = [f"{count:,}" for count in piece["flops"]]
        sizes = [f"{piece[key]:,}" for key in ("saved_bytes", "our_bytes")]
        rows.append([*name.split("/"), *flops, *sizes, f"{_unlisted(piece):.2%}"])
    columns = ["block", "attention", "type", "FLOPs forward", "FLOPs backward"]
    columns += ["saved bytes, library", "saved bytes, ours", "unlisted"]
    return Table(title="Blocks", columns=columns, rows=rows)


def _differences(blocks: dict[str, dict[str, Any]]) -> Table:
    """Each reason once, over all runs that show it."""
    by_reason: dict[str, list[dict[str, Any]]] = {}
    for piece in blocks.values():
        for item in piece["listed"]:
            by_reason.setdefault(item["reason"], []).append(item)
    rows = []
    for reason, items in by_reason.items():
        ops = sorted({op for item in items for op in item["op"].split(", ")})
        sizes = [f"{sum(x[key] for x in items):,}" for key in ("library_bytes", "our_bytes")]
        rows.append([", ".join(ops), reason, str(len(items)), *sizes])
    columns = ["saved results of", "why", "runs", "bytes, library", "bytes, ours"]
    return Table(title="Differences by operation", columns=columns, rows=rows)


ITEM = Item(
    name="hf_blocks",
    shows="Lowered layers do and keep what blocks of transformers 5.23.0 do and keep.",
    target="FLOPs equal torch's counter; saved bytes within 1 % after listed differences.",
    run=run,
    reads=(
        *PRICING,
        "tests/support/hf/hf_blocks.py",
        "tests/support/hf/hf_case.py",
        "tests/support/hf/hf_cases.py",
        "tests/support/hf/hf_differences.py",
        "tests/support/hf/hf_trace.py",
    ),
)
