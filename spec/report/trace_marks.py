"""Names that a run gives to what it does, so that a trace of it can be read.

The executor and the kernels put these into torch's profiler; the reader of traces looks for
them. torch's own fully_shard marks its work with names that begin with ``FSDP::``.
"""

from __future__ import annotations

from ..schedules.stage_order import Pass

STEP = "step"
READ_DATA = "read data"
UPDATE = "update"
"""Open sums of gradients, their norm, clipping, the optimizer."""
RECOMPUTE = "recompute"
COMMUNICATE_TP = "communicate tp"
"""Collectives inside layers and between layers that split activations differently."""
COMMUNICATE_CP = "communicate cp"
"""Rings, exchanges of heads, and tokens that change hands between layers."""
COMMUNICATE_EP = "communicate ep"
"""Tokens on their way to experts and back."""
COMMUNICATE_SUMS = "communicate sums"
COMMUNICATE_NORM = "communicate norm"
WAIT_SEND = "wait send"
TECHNIQUE = "technique"
PASS = "pass"
RECEIVE = "wait receive"
SEND = "send"
POST_RECEIVE = "post receive"
BETWEEN_STAGES = "between stages"
"""What process groups of messages between stages are called."""


def technique_mark(name: str) -> str:
    """Around what a technique does of its own."""
    return f"{TECHNIQUE} {name}"


def pass_key(item: Pass) -> str:
    """A pass in short: direction, chunk and micro-batch; W is the second part of a backward."""
    letter = "F" if item.forward else "W" if item.part == "weight" else "B"
    return f"{letter} {item.chunk} {item.micro_batch}"


def pass_mark(item: Pass) -> str:
    """Around a pass."""
    return f"{PASS} {pass_key(item)}"


def receive_mark(item: Pass) -> str:
    """Around the wait for what a pass needs."""
    return f"{RECEIVE} {pass_key(item)}"


def post_receive_mark(item: Pass) -> str:
    """Around making room for what a pass needs."""
    return f"{POST_RECEIVE} {pass_key(item)}"


def send_mark(arrives_as: Pass, peer: int) -> str:
    """Around the start of a message: the pass that needs it, and the rank that runs that."""
    return f"{SEND} {pass_key(arrives_as)} to {peer}"
