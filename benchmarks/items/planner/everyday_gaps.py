"""Gaps of searches of the sizes that people ask about: one box to eight nodes, 7B to 671B."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from harness.processes import plan_command, question_words, ran
from harness.shapes import PLANNING, Evidence, Item, Table, judged, reported
from harness.work import Work


class Question(NamedTuple):
    """A model on a cluster, with a batch, a sequence length and further flags."""

    model: str
    cluster: str
    batch: int
    seq_len: int
    flags: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Name in the results."""
        flags = " ".join(("", *self.flags))
        return f"{self.model} on {self.cluster}, {self.batch} x {self.seq_len}{flags}"


LORA = ("--trainable", "lora:rank=16")
FP16 = ("--dtype", "fp16")
QUESTIONS = (
    Question("gpt2-xl", "4xA100-40GB", 64, 1024),
    Question("gpt2-xl", "8xV100-32GB", 128, 1024, FP16),
    Question("llama-2-7b", "1xH200", 32, 4096),
    Question("llama-2-7b", "2xH100", 32, 4096),
    Question("llama-2-7b", "4xA100-80GB", 64, 4096),
    Question("llama-2-7b", "8xH100", 128, 4096),
    Question("llama-2-7b", "8xA100-40GB", 128, 4096),
    Question("llama-2-7b", "16xA100-80GB", 256, 4096),
    Question("llama-2-7b", "64xH100", 512, 4096),
    Question("llama-2-7b", "16xV100-32GB", 128, 2048, FP16),
    Question("llama-3-8b", "8xH100", 64, 8192),
    Question("llama-3-8b", "8xA100-80GB", 64, 8192),
    Question("llama-3-8b", "8xL40S", 64, 4096),
    Question("llama-3-8b", "32xH100", 256, 8192),
    Question("llama-3-8b", "64xA100-80GB", 512, 8192),
    Question("llama-3-8b", "8xH200", 16, 32768),
    Question("mistral-7b", "8xA100-80GB", 128, 4096),
    Question("qwen2.5-7b", "8xH100", 128, 4096),
    Question("qwen2.5-7b", "16xH100", 256, 8192),
    Question("qwen3-8b", "8xB200", 128, 8192),
    Question("llama-2-13b", "8xA100-80GB", 128, 4096),
    Question("llama-2-13b", "16xA100-40GB", 128, 4096),
    Question("llama-2-13b", "32xH100", 256, 4096),
    Question("qwen2.5-32b", "8xH100", 64, 4096),
    Question("qwen2.5-32b", "16xA100-80GB", 128, 4096),
    Question("qwen2.5-32b", "32xH100", 256, 8192),
    Question("llama-2-70b", "16xH100", 64, 4096),
    Question("llama-2-70b", "32xA100-80GB", 256, 4096),
    Question("llama-2-70b", "64xH100", 512, 4096),
    Question("llama-3-70b", "16xH200", 128, 8192),
    Question("llama-3-70b", "64xH100", 256, 8192),
    Question("qwen2.5-72b", "32xA100-40GB", 128, 4096),
    Question("qwen2.5-72b", "32xH100", 256, 4096),
    Question("mixtral-8x7b", "8xH100", 64, 4096),
    Question("mixtral-8x7b", "16xH100", 128, 4096),
    Question("mixtral-8x7b", "64xA100-80GB", 512, 4096),
    Question("qwen3-30b-a3b", "8xH100", 64, 4096),
    Question("qwen3-30b-a3b", "16xH100", 256, 4096),
    Question("moonlight", "8xH100", 64, 4096),
    Question("deepseek-v2", "64xH100", 512, 4096),
    Question("deepseek-v3", "64xH200", 512, 4096),
    Question("deepseek-v3", "256xH100", 1024, 4096),
    Question("llama-3-8b", "1xRTX-4090-24GB", 16, 2048, LORA),
    Question("llama-3-8b", "2xRTX-4090-24GB", 16, 2048, LORA),
    Question("llama-2-7b", "4xRTX-3090-24GB", 32, 2048, LORA),
    Question("llama-2-13b", "4xRTX-A6000-48GB", 32, 2048, LORA),
    Question("llama-3-70b", "8xA100-80GB", 32, 2048, LORA),
    Question("llama-2-7b", "8xA100-80GB+8xV100-32GB", 128, 4096, FP16),
    Question("gpt2-xl", "4xA100-80GB+4xV100-32GB", 64, 1024, FP16),
    Question("llama-2-13b", "8xH100+8xA100-80GB", 128, 4096),
)
DRAWN = 8
"""Questions of the short form."""
SMALL_GAP, LEAST_SMALL = 0.05, 25
COLUMNS = ("question", "step s", "gap", "simulated", "stopped by", "search s")


def run(work: Work) -> Evidence:
    """Plan for every question, as its own process."""
    questions = {q.key: q for q in QUESTIONS}
    names = work.sample(list(questions), DRAWN, 2)
    pieces = dict(
        zip(names, work.pieces(names, lambda name: _search(questions[name])), strict=True)
    )
    gaps = {name: piece["gap"] for name, piece in pieces.items() if "gap" in piece}
    small = sum(gap <= SMALL_GAP for gap in gaps.values())
    middle = sorted(gaps.values())[len(gaps) // 2]
    wanted = LEAST_SMALL * len(names) / len(questions)
    rows = [
        judged(
            f"gaps of at most {SMALL_GAP:.0%}",
            f"{small} of {len(names)}",
            f"at least {LEAST_SMALL} of {len(questions)}",
            small >= wanted,
            small=small,
        ),
        reported(
            "gaps of all questions",
            f"median {middle:.1%}, largest {max(gaps.values()):.1%}",
            gaps={name: round(gap, 4) for name, gap in gaps.items()},
        ),
    ]
    lines = [[name, *_cells(piece)] for name, piece in pieces.items()]
    return Evidence(rows=rows, tables=[Table(title="Every search", columns=COLUMNS, rows=lines)])


def _search(question: Question) -> dict[str, Any]:
    *sizes, flags = question
    done = ran([*plan_command(), *question_words(*sizes), *flags])
    if done.code:
        return {"stopped_by": done.err.strip()}
    document = json.loads(done.out)
    search = {k: document["search"][k] for k in ("gap", "candidates", "stopped_by", "seconds")}
    return {**search, "step_time_s": document["prediction"]["step_time_s"]}


def _cells(piece: dict[str, Any]) -> list[str]:
    if "gap" not in piece:
        return ["", "", "", piece["stopped_by"][:80], ""]
    return [
        f"{piece['step_time_s']:.3f}",
        f"{piece['gap']:.2%}",
        str(piece["candidates"]),
        piece["stopped_by"],
        f"{piece['seconds']:.1f}",
    ]


ITEM = Item(
    name="everyday_gaps",
    shows="How far plans are from the proven bound, at the sizes that people ask about.",
    target="gaps of at most 5 % in half of 8 of 50 searches.",
    full_target="gaps of at most 5 % in 25 of 50 searches.",
    run=run,
    reads=(*PLANNING, "api", "benchmarks/harness/processes.py"),
    timed=True,
)
