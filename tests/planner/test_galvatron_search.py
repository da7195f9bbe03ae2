"""The search under Galvatron's costs: as good as every plan, and as its published runs."""

from __future__ import annotations

import math

import pytest
from galvatron_cases import every_plan, llama_job, random_job

from shardwright.costmodel.galvatron.job import usable_mb
from shardwright.costmodel.galvatron.price import priced
from shardwright.planner.galvatron.search import GalvatronFound, search

TOLERANCE = 1e-9


def found_of(batch: int, gib: int) -> GalvatronFound:
    found = search(llama_job(batch), gib * 1024)
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(60))
def test_the_search_equals_every_plan(seed: int) -> None:
    job, budget_mb = random_job(seed)
    best_s, plans = every_plan(job, usable_mb(budget_mb))
    found = search(job, budget_mb)
    assert plans >= 30
    if found is None:
        assert best_s == math.inf
        return
    assert found.price.step_s == priced(job, found.plan).step_s
    assert max(found.price.used_mb) <= usable_mb(budget_mb)
    assert found.lower_bound_s <= best_s * (1 + TOLERANCE)
    assert found.price.step_s == pytest.approx(best_s, rel=TOLERANCE)
    assert found.stopped_by == "proof"


@pytest.mark.parametrize(
    ("gib", "batch", "least"),
    [
        (16, 16, 9.991219), (24, 16, 13.657047), (36, 16, 14.732339), (20, 16, 13.708719),
        (16, 64, 10.896808), (24, 64, 12.522066), (36, 64, 15.275960),
    ],
)  # fmt: skip
def test_no_published_run_is_better(gib: int, batch: int, least: float) -> None:
    found = found_of(batch, gib)
    assert batch / found.price.step_s >= least - 5e-7
    assert found.stopped_by == "proof"
    assert max(found.price.used_mb) <= usable_mb(gib * 1024)
