"""A checkpoint on a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from ...spec.units import format_bytes


def print_checkpoint(out: Console, document: dict[str, Any]) -> None:
    """Print what a checkpoint holds, or what it was converted to."""
    if "to" in document:
        step = "" if document["step"] is None else f" of step {document['step']}"
        out.print(f"{document['tensors']} tensors{step} in {document['out']}, as {document['to']}")
        return
    if "tensors" not in document:
        out.print(f"{document['kind']} checkpoint that cannot be looked into")
        out.print(f"damaged: {document['damaged'][0]}")
        return
    step = document["step"]
    out.print(
        f"{document['kind']} checkpoint"
        + ("" if step is None else f" of step {step}")
        + f", names of {document['names'] or 'no known framework'}"
        + ("" if document["model"] is None else f", model {document['model']}")
    )
    dtypes = ", ".join(f"{count} {dtype}" for dtype, count in document["dtypes"].items())
    out.print(
        f"{document['tensors']} tensors ({dtypes}), {format_bytes(document['bytes'])} in "
        f"{document['files']} files, in at most {document['parts']} parts each"
    )
    for name in document["missing"]:
        out.print(f"missing: {name}")
    for damage in document["damaged"]:
        out.print(f"damaged: {damage}")
    if document["damages"]:
        out.print(f"{document['damages']} damaged parts")
    elif document["checked"]:
        out.print("whole: every byte is as it was written")
    else:
        out.print("sizes and headers are right; safetensors keeps no digests to check bytes by")
