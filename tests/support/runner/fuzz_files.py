"""Randomly damaged files: refused in one line, or usable.

Every kind of file that a person hands over has a few whole ones here; a case is one of them with
bytes changed, dropped, doubled, cut off, or with numbers and words put in place of others.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from generators.samples import sample

from shardwright.api.problem.model_and_cluster import cluster_of, model_of
from shardwright.api.problem.price_file import prices_of
from shardwright.datasets.published.runs import TABLE, is_memory_table, published_runs
from shardwright.spec.cluster.calibration import Calibration, unfitted
from shardwright.spec.cluster.machine_profile import MachineProfile
from shardwright.spec.codec import canonical_json, from_json, read_text
from shardwright.spec.errors import ShardwrightError
from shardwright.spec.plan.plan import load_plan

MOST_LINE = 1300
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192,
    "rope_theta": 500000.0, "tie_word_embeddings": False, "hidden_act": "silu",
}  # fmt: skip
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
MODEL = "name: mine\nlayers: 24\nhidden: 2048\nffn: 8192\nheads: 16\nkv_heads: 8\nvocab: 50304\n"
CLUSTER = (
    "nodes: 4\ndevices_per_node: 8\ndevice: H100-80GB\nfabric: 8x400G-IB\n"
    "# what was measured here\nintra_node_bandwidth_gb_per_s: 450\n"
)
PRICES = "currency: EUR\ndevice_hour:\n  H100-80GB: 2.5\n"
PROFILE = {
    "schema_version": 1, "fingerprint": "0" * 16, "machine": {"cores": "2"}, "ranks": 2,
    "measured_at": "2026-11-23T00:00:00Z", "duration_s": 1.0,
    "kernels": [{"op": "matmul", "shape": [64, 64, 64], "dtype": "fp32", "flops": 524288,
                 "traffic_bytes": 49152, "time_s": 1e-5}],
    "host_s": {"pass": 1e-4},
}  # fmt: skip
WORDS = (
    b"0", b"-1", b"1e999", b"NaN", b"null", b"true", b"[]", b"{}", b'""', b"9" * 400, b"1.5",
    b"18446744073709551616", b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"&a [*a]", b"!!python/none",
    b"<<: *a", b"- " * 200, b"[" * 500, b'{"a":' * 500, b"\n", b"\t", b",", b'"', b"'", b"1e308",
    b"0x10", b"no", b"~", b"=cmd|' /C'!A0", b"../../etc/passwd", "ü\u202e".encode(),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of file: its name, whole examples, and its reader."""

    file: str
    whole: tuple[bytes, ...]
    read: Callable[[Path], object]


def _model_folder(path: Path) -> object:
    return model_of(str(path.parent))


def _table(path: Path) -> object:
    return is_memory_table(path), published_runs.__wrapped__(path)


@cache
def kinds() -> dict[str, Kind]:
    """Every kind, by name."""
    runs = TABLE.read_bytes().splitlines(keepends=True)
    memory = TABLE.with_name("memory.csv").read_bytes().splitlines(keepends=True)
    plans = tuple(canonical_json(sample(n).plan.to_document()).encode() for n in range(0, 40, 4))
    configs = tuple(json.dumps(config, indent=1).encode() for config in (LLAMA, MIXTRAL))
    calibration = canonical_json(unfitted(name="mine", device="H100", stack="megatron")).encode()
    return {
        "config": Kind(file="config.json", whole=configs, read=_model_folder),
        "model": Kind(
            file="model.yaml", whole=(MODEL.encode(),), read=lambda path: model_of(str(path))
        ),
        "cluster": Kind(
            file="cluster.yaml", whole=(CLUSTER.encode(),), read=lambda path: cluster_of(str(path))
        ),
        "prices": Kind(file="prices.yaml", whole=(PRICES.encode(),), read=_prices),
        "plan": Kind(
            file="plan.json", whole=plans, read=lambda path: load_plan(_text(path), str(path))
        ),
        "table": Kind(
            file="runs.csv", whole=(b"".join(runs[:6]), b"".join(memory[:6])), read=_table
        ),
        "profile": Kind(
            file="profile.json",
            whole=(json.dumps(PROFILE).encode(),),
            read=lambda path: from_json(MachineProfile, _text(path), str(path)),
        ),
        "calibration": Kind(
            file="calibration.json",
            whole=(calibration,),
            read=lambda path: from_json(Calibration, _text(path), str(path)),
        ),
    }


def _text(path: Path) -> str:
    return read_text(path, "a file")


def _prices(path: Path) -> object:
    return prices_of(str(path), cluster_of("8xH100-80GB").cluster)


def damaged(whole: bytes, chance: random.Random) -> bytes:
    """A file with one to four things changed."""
    made = bytearray(whole)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(made) + 1)
        match chance.randrange(7):
            case 0 if made:
                made[place % len(made)] = chance.randrange(256)
            case 1:
                made[place:place] = chance.choice(WORDS)
            case 2:
                del made[place : place + chance.randint(1, 40)]
            case 3:
                made[place:place] = made[place : place + chance.randint(1, 400)] * 3
            case 4:
                del made[place:]
            case _:
                found = list(re.finditer(rb"[A-Za-z0-9_.-]+", bytes(made)))
                if found:
                    word = chance.choice(found)
                    made[word.start() : word.end()] = chance.choice(WORDS)
    return bytes(made)


def run_files(count: int, folder: Path, first: int = 0) -> tuple[Counter[str], float]:
    """Read so many damaged files.

    Returns:
        What became of them, by kind and verdict, and the seconds that the slowest took.

    Raises:
        AssertionError: a file that ended otherwise than in one line of ours; it is left in folder.
    """
    found: Counter[str] = Counter()
    slowest_s = 0.0
    names = sorted(kinds())
    for number in range(first, first + count):
        chance = random.Random(f"file {number}")
        name = names[number % len(names)]
        kind = kinds()[name]
        path = folder / name / kind.file
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(damaged(chance.choice(kind.whole), chance))
        start_s = time.perf_counter()
        try:
            kind.read(path)
            verdict = "read"
        except ShardwrightError as error:
            line = str(error)
            assert line.isprintable(), f"file {number} ({name}): {line!r}"
            assert len(line) <= MOST_LINE, f"file {number} ({name}): {len(line)} characters"
            verdict = "refused"
        except Exception as error:
            raise AssertionError(
                f"file {number} ({name}): {type(error).__name__}: {error}"
            ) from error
        slowest_s = max(slowest_s, time.perf_counter() - start_s)
        found[f"{name} {verdict}"] += 1
    return found, slowest_s
