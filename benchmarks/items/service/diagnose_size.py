"""Measured runs explained, changes of a configuration, and sizes of published pre-trainings.

Of ``runs.csv``, which no constant was fitted to, the first run of each of twelve pairs of a model
and a device is taken, a source in turn; and of each job that was measured under several
configurations the slowest and the fastest, where they are 2 % apart. The rest are kept back.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from statistics import median
from typing import Any, NamedTuple

from harness.shapes import PLANNING, Evidence, Item, Row, Table, judged, reported
from harness.work import Work

from shardwright.api.diagnose.waterfall import UNEXPLAINED, waterfall
from shardwright.api.planning.report import simulate_plan
from shardwright.api.planning.uniform_chunks import even_layers
from shardwright.api.planning.uniform_plan import UniformStrategy, uniform_plan
from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.api.size.size_point import DAY_S, quick_point, searched_point
from shardwright.api.validation.priced_run import measured_s
from shardwright.api.validation.published_run import planned_run, qualifies, simulation_arguments
from shardwright.costmodel.explain.step_cost import with_training
from shardwright.datasets.published.runs import PublishedRun, published_runs
from shardwright.spec.errors import ShardwrightError

RUNS, PAIRS = 12, 10
SEARCH_S = 60.0
APART = 0.02
"""Measured difference from which the sign of a change can be told."""
UNEXPLAINED_MOST, DAYS_WITHIN, POINTS = 0.15, 0.15, 0.05
SIGNS, SIZES = 9, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Pretraining:
    """A published pre-training; ``device_hours`` over ``devices`` are its days.

    ``layout``: flags of the plan that it ran under, empty where that is not printed in full.
    """

    name: str
    model: str | Mapping[str, Any]
    cluster: str
    devices: int
    tokens: int
    device_hours: float
    global_batch: int
    seq_len: int
    stack: str
    source: str
    attention: str | None = None
    layout: Mapping[str, Any] = field(default_factory=dict)

    @property
    def days(self) -> float:
        """Published days."""
        return self.device_hours / self.devices / 24


PRETRAININGS = (
    Pretraining(
        name="Llama 2 70B",
        model="llama-2-70b",
        cluster="2048xA100-80GB@8x200G-IB",
        devices=2048,
        tokens=2 * 10**12,
        device_hours=1_720_320,
        global_batch=1024,
        seq_len=4096,
        stack="megatron",
        source="Touvron et al., 2023 (arXiv 2307.09288), tables 1 and 2, section 2.2.1: 4 M tokens "
        "a step, 200 Gb/s end-points; device-hours are printed, the number of devices is taken "
        "from 'up to 2000 GPUs'",
    ),
    Pretraining(
        name="Llama 3.1 405B",
        model="llama-3.1-405b",
        cluster="16384xH100-80GB",
        devices=16_384,
        tokens=15_600_000_000_000,
        device_hours=30_840_000,
        global_batch=2048,
        seq_len=8192,
        stack="megatron",
        source="Llama team, 2024 (arXiv 2407.21783), sections 3.3 and 3.4: 15.6 T tokens, up to "
        "16 K H100, 16 M tokens a step; device-hours: model card of Llama 3.1, interruptions and "
        "the phases of longer sequences among them",
    ),
    Pretraining(
        name="BLOOM 176B",
        model={
            "name": "bloom-176b",
            "layers": 70,
            "hidden": 14336,
            "heads": 112,
            "vocab": 250_880,
            "ffn": 57_344,
            "activation": "gelu_tanh",
            "norm": "layernorm",
            "position": "none",
            "tie_embeddings": True,
            "qkv_bias": True,
            "out_bias": True,
            "mlp_bias": True,
        },
        cluster="384xA100-80GB@4x100G-IB",
        devices=384,
        tokens=366 * 10**9,
        device_hours=1_082_990,
        global_batch=2048,
        seq_len=2048,
        stack="megatron-deepspeed",
        source="Le Scao et al., 2022 (arXiv 2211.05100), section 3 (ALiBi is taken "
        "as no positions); device-hours: Luccioni et al., "
        "2022 (arXiv 2211.02001), table 1; interruptions are in them",
        attention="unfused",  # as names.toml says of the runs of this job
        layout={"tp": 4, "pp": 12, "micro_batch": 2, "shard": "zero1", "recompute": "full"},
    ),
)


class Pair(NamedTuple):
    """The slowest and the fastest configuration of a job."""

    slow: PublishedRun
    fast: PublishedRun


def run(work: Work) -> Evidence:
    """Explain runs, compare configurations, size trainings."""
    runs = work.sample(_chosen_runs(), RUNS, 3)
    pairs = work.sample(_chosen_pairs(), PAIRS, 2)
    trainings = work.sample(PRETRAININGS, len(PRETRAININGS), 1)
    bars = [_explained(item) for item in runs]
    changes = [_change(pair) for pair in pairs]
    sizes = [_sized(item) for item in trainings]
    days = [row for found in sizes for row in _size_rows(found)]
    return Evidence(
        rows=[*_run_rows(bars), *_pair_rows(changes, len(pairs)), *days],
        tables=[
            Table(
                title="Measured steps explained",
                columns=("run", "measured s", "simulated s", "MFU", "unexplained", "largest bars"),
                rows=[b["line"] for b in bars],
            ),
            Table(
                title="Configurations of one job, from the slowest to the fastest",
                columns=("pair", "measured: step saved", "predicted", "points apart"),
                rows=[c["line"] for c in changes],
            ),
            Table(
                title="Pre-trainings",
                columns=("training", "devices", "published days", "predicted days", "at least",
                         "MFU", "plan", "source"),
                rows=[s["line"] for s in sizes],
            ),
        ],
    )  # fmt: skip


def _priced(item: PublishedRun) -> Any | None:
    """The simulation of a row, with its measured seconds; None where it cannot be asked."""
    if not qualifies(item):
        return None
    try:
        planned = planned_run(simulation_arguments(item))
        problem = planned.problem
        simulated = simulate_plan(planned.plan, problem.stack, None, planned.assumed)
    except ShardwrightError:  # what is not priced here is no example
        return None
    seconds = measured_s(item, planned.plan.workload.global_batch)
    return None if seconds is None else (simulated, seconds)


def _source(item: PublishedRun) -> str:
    return item.id.rpartition("-")[0]


def _in_turn(keyed: Iterable[tuple[str, Any]]) -> Iterator[Any]:
    """Items of each source in turn, in the order of the table."""
    by_source: dict[str, list[Any]] = defaultdict(list)
    for source, item in keyed:
        by_source[source].append(item)
    for turn in zip_longest(*by_source.values()):
        yield from (item for item in turn if item is not None)


def _chosen_runs() -> list[PublishedRun]:
    """The first run of each pair of a model and a device that can be priced, a source in turn."""
    first: dict[Hashable, PublishedRun] = {}
    for item in published_runs():
        first.setdefault((_source(item), item.model, item.hardware), item)
    chosen: list[PublishedRun] = []
    for item in _in_turn((_source(item), item) for item in first.values()):
        if len(chosen) < RUNS and _priced(item) is not None:
            chosen.append(item)
    return chosen


def _chosen_pairs() -> list[Pair]:
    """Slowest and fastest configuration of jobs measured under several, a source in turn."""
    jobs: dict[Hashable, list[PublishedRun]] = defaultdict(list)
    for item in published_runs():
        size = (item.layers, item.hidden, item.seq, item.dtype, item.global_batch)
        if None not in size[:3] and item.global_batch is not None:
            jobs[_source(item), item.hardware, item.gpus, item.model, size].append(item)
    found = []
    for key, items in jobs.items():
        if len({_configuration(item) for item in items}) > 1 and isinstance(key, tuple):
            found.append((str(key[0]), items))
    chosen: list[Pair] = []
    for items in _in_turn(found):
        if len(chosen) == PAIRS:
            break
        pair = _ends(items)
        if pair is not None:
            chosen.append(pair)
    return chosen


def _configuration(item: PublishedRun) -> Hashable:
    degrees = (item.tp, item.pp, item.vpp, item.cp, item.ep)
    return (degrees, item.zero, item.micro_batch, item.recompute)


def _ends(items: Sequence[PublishedRun]) -> Pair | None:
    """The slowest and the fastest that can be priced, of two configurations."""
    timed = [(priced[1], item) for item in items if (priced := _priced(item)) is not None]
    if len(timed) < 2:
        return None
    fast, slow = min(timed, key=lambda pair: pair[0]), max(timed, key=lambda pair: pair[0])
    if fast[0] > slow[0] * (1 - APART) or _configuration(fast[1]) == _configuration(slow[1]):
        return None
    return Pair(slow=slow[1], fast=fast[1])


def _explained(item: PublishedRun) -> dict[str, Any]:
    """Bars of a run."""
    simulated, seconds = _known(item)
    found = waterfall(simulated, seconds)
    unexplained = found.seconds[UNEXPLAINED] / seconds
    largest = sorted(found.bars[1:], key=lambda bar: -abs(bar.share))[:3]
    return {
        "adds_up": math.fsum(bar.seconds for bar in found.bars) == seconds,
        "unexplained": abs(unexplained),
        "line": (
            item.id,
            f"{seconds:.4g}",
            f"{found.predicted_s:.4g}",
            f"{found.mfu:.1%}",
            f"{unexplained:+.1%}",
            ", ".join(f"{bar.term} {bar.share:.1%}" for bar in largest),
        ),
    }


def _known(item: PublishedRun) -> Any:
    priced = _priced(item)
    if priced is None:
        raise RuntimeError(f"{item.id} was chosen as priced")
    return priced


def _change(pair: Pair) -> dict[str, Any]:
    """Share of the slow step that the fast configuration saves, measured and predicted."""
    (slow, slow_s), (fast, fast_s) = _known(pair.slow), _known(pair.fast)
    predicted = [side.report.prediction.tokens_per_s for side in (slow, fast)]
    saved, expected = 1 - fast_s / slow_s, 1 - predicted[0] / predicted[1]
    return {
        "sign": saved * expected > 0,
        "apart": abs(saved - expected),
        "line": (
            f"{pair.slow.id} -> {pair.fast.id}",
            f"{saved:.1%}",
            f"{expected:+.1%}",
            f"{100 * abs(saved - expected):.1f}",
        ),
    }


def _sized(item: Pretraining) -> dict[str, Any]:
    """Days of a pre-training by the best plan of a full search, and under its own layout."""
    inputs = Inputs(
        model=item.model,
        cluster=item.cluster,
        global_batch=item.global_batch,
        seq_len=item.seq_len,
        stack=item.stack,
        attention=item.attention,
    )
    point = searched_point(quick_point(inputs, item.devices, item.tokens), SEARCH_S)
    document = point.to_document()
    days = document["days"]
    error = None if days is None else days / item.days - 1
    return {
        "item": item,
        "days": days,
        "error": error,
        "own_days": _own_days(item, inputs),
        "line": (
            item.name,
            f"{item.devices:,}",
            f"{item.days:.1f}",
            point.why if days is None else f"{days:.1f} ({error:+.1%})",
            f"{point.least_time_s / DAY_S:.1f}",
            "" if document["mfu"] is None else f"{document['mfu']:.1%}",
            document["shape"] or "",
            item.source,
        ),
    }


def _own_days(item: Pretraining, inputs: Inputs) -> float | None:
    """Days under the published layout, where that is known."""
    if not item.layout:
        return None
    problem = resolve(inputs)
    plan, _ = uniform_plan(problem, UniformStrategy.from_flags(item.layout), even_layers)
    prediction = simulate_plan(plan, problem.stack, None, ()).report.prediction
    training = with_training(prediction, plan, item.tokens).training
    return None if training is None else training.time_s / DAY_S


def _run_rows(bars: Sequence[dict[str, Any]]) -> Iterator[Row]:
    exact = sum(b["adds_up"] for b in bars)
    yield judged("measured steps whose bars add up exactly", f"{exact} of {len(bars)}", "all",
                 exact == len(bars))  # fmt: skip
    middle = median(b["unexplained"] for b in bars)
    yield judged(
        "share of the measured step that stays unexplained, median",
        f"{middle:.1%}",
        f"at most {UNEXPLAINED_MOST:.0%}",
        middle <= UNEXPLAINED_MOST,
        unexplained=middle,
    )
    most = max(b["unexplained"] for b in bars)
    yield reported("the same, at most", f"{most:.1%}", unexplained=most)


def _pair_rows(changes: Sequence[dict[str, Any]], count: int) -> Iterator[Row]:
    signs = sum(c["sign"] for c in changes)
    sizes = sum(c["apart"] <= POINTS for c in changes)
    yield judged(
        "pairs of configurations whose faster one is predicted",
        f"{signs} of {count}",
        f"at least {SIGNS} of {PAIRS}",
        signs * PAIRS >= SIGNS * count,
    )
    yield judged(
        "pairs whose saved share of the step is within 5 points",
        f"{sizes} of {count}",
        f"at least {SIZES} of {PAIRS}",
        sizes * PAIRS >= SIZES * count,
    )


def _size_rows(found: dict[str, Any]) -> Iterator[Row]:
    item, days, error = found["item"], found["days"], found["error"]
    predicted = "no plan fits" if days is None else f"predicted {days:.1f}: {error:+.1%}"
    yield judged(
        f"days of {item.name} on {item.devices:,} devices",
        f"published {item.days:.1f}, {predicted}",
        f"within {DAYS_WITHIN:.0%}",
        error is not None and abs(error) <= DAYS_WITHIN,
        published_days=item.days,
        predicted_days=days,
    )
    own = found["own_days"]
    if own is not None:
        figure = f"published {item.days:.1f}, predicted {own:.1f}: {own / item.days - 1:+.1%}"
        yield reported(f"the same under the layout that {item.name} ran with", figure, days=own)


ITEM = Item(
    name="diagnose_size",
    shows="Measured runs are explained, changes predicted, published pre-trainings sized.",
    target=(
        f"Bars add up exactly, at most {UNEXPLAINED_MOST:.0%} unexplained on the median of {RUNS} "
        f"runs; of {PAIRS} pairs {SIGNS} signs and {SIZES} sizes within 5 points; days of three "
        f"pre-trainings within {DAYS_WITHIN:.0%}."
    ),
    run=run,
    reads=(*PLANNING, "api/diagnose", "api/size", "api/validation", "datasets/published"),
)
