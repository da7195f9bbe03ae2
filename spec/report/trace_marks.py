"""Names of a run's work in its trace.

The executor and the kernels record them with torch's profiler; the reader of traces searches for
them. torch's own fully_shard marks its work with names that begin with ``FSDP::``.
"""

from __future__ import annotations

from ..schedules.stage_order import Pass

STEP = "step"
READ_DATA = "read data"
UPDATE = "update"
"""Pending gradient reductions, global norm, clipping, optimizer."""
RECOMPUTE = "recompute"
COMMUNICATE_TP = "communicate tp"
"""Collectives inside layers and redistribution between layers."""
COMMUNICATE_CP = "communicate cp"
"""Rings, exchanges of heads, and exchanges of tokens between layers."""
COMMUNICATE_EP = "communicate ep"
"""All-to-all of tokens to experts and back."""
COMMUNICATE_SUMS = "communicate sums"
COMMUNICATE_NORM = "communicate norm"
WAIT_SEND = "wait send"
TECHNIQUE = "technique"
PASS = "pass"
RECEIVE = "wait receive"
SEND = "send"
POST_RECEIVE = "post receive"
BETWEEN_STAGES = "between stages"
"""Name of the process groups for messages between stages."""


def technique_mark(name: str) -> str:
    """Name of a technique's own work."""
    return f"{TECHNIQUE} {name}"


def pass_key(pass_: Pass) -> str:
    """Short name of a pass: direction, chunk, micro-batch.

    W is the second part of a backward.
    """
    letter = "F" if pass_.forward else "W" if pass_.part == "weight" else "B"
    return f"{letter} {pass_.chunk} {pass_.micro_batch}"


def pass_mark(pass_: Pass) -> str:
    """Name of a pass."""
    return f"{PASS} {pass_key(pass_)}"


def receive_mark(pass_: Pass) -> str:
    """Name of the wait for a pass's input."""
    return f"{RECEIVE} {pass_key(pass_)}"


def post_receive_mark(pass_: Pass) -> str:
    """Name of posting the receive for a pass's input."""
    return f"{POST_RECEIVE} {pass_key(pass_)}"


def send_mark(arrives_as: Pass, peer: int) -> str:
    """Name of the start of a message.

    The pass that receives it, and that pass's rank.
    """
    return f"{SEND} {pass_key(arrives_as)} to {peer}"
