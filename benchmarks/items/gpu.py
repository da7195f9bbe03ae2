"""What only GPUs can show, named so that nobody takes it for shown."""

from __future__ import annotations

from harness.shapes import SPEC, Evidence, Item, unmeasured
from harness.work import Work

NEEDED = {
    "a run over NCCL": "needs two CUDA devices; the same code path runs over gloo",
    "explicit prefetch of sharded parameters": "on for CUDA devices only, where copies overlap",
    "bf16 with flash attention": "needs a CUDA device; bf16 on cores uses another kernel",
    "predicted against measured on several GPUs": (
        "no multi-GPU prediction was confirmed by a run of ours; see `published` for runs of others"
    ),
}


def run(work: Work) -> Evidence:
    """List them."""
    work.say("nothing of this is measured here")
    return Evidence(rows=[unmeasured(name, why) for name, why in NEEDED.items()])


ITEM = Item(
    name="gpu",
    shows="What this machine, without a GPU, cannot show.",
    target="none here.",
    run=run,
    reads=SPEC,
)
