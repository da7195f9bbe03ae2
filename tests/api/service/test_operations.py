"""What a plan is answered with: cost, ties, rivals, sensitivities, and what else would fit."""

from __future__ import annotations

import itertools
import json
import math
import re
import statistics
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.api.validation.priced_run import PricedRun, price_run
from shardwright.api.validation.scores import LAYOUT_COLUMNS, QUESTION_COLUMNS
from shardwright.datasets.published.runs import TABLE, published_runs
from shardwright.planner.solve.solve import solve
from shardwright.spec.errors import InfeasibleError, InputError

Plan = Callable[..., Any]
ASKED = ("--model", "llama-3-8b", "--cluster", "2x8xH100-80GB", "--global-batch", "32",
         "--seq-len", "8192")  # fmt: skip
PRICES = "currency: USD\ndevice_hour:\n  H100: 2.5\nnode_hour:\n  H100: 1\n"
WITHIN = 0.05
PLAIN = ("recompute=none", "shard=zero1", "cp=1")
"""Pins that leave few plans of one device, which would all be tried."""


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same question asked for the fastest, the cheapest and the simplest plan."""
    from shardwright.api.cli.main import run

    folder = tmp_path_factory.mktemp("answers")
    prices = folder / "prices.yaml"
    prices.write_text(PRICES)
    asked = {
        "fastest": ("--prefer", "best"),
        "priced": ("--prices", str(prices), "--prefer", "best"),
        "cheapest": (
            "--prices",
            str(prices),
            "--objective",
            "cost",
            "--top",
            "5",
            "--prefer",
            "best",
        ),
        "simplest": ("--prefer", f"simple:{100 * WITHIN:g}%"),
    }
    for name, flags in asked.items():
        assert run((*ASKED, *flags, "--json", str(folder / name))) == 0
    return {name: json.loads((folder / name).read_text()) for name in asked}


def devices_of(plan: Any) -> int:
    stages = plan["programs"][0]["stages"]
    return sum(part["count"] for stage in stages for part in stage["devices"])


def test_cost_is_price_times_seconds_over_tokens(documents: Any) -> None:
    for name in ("priced", "cheapest"):
        for item in (documents[name], *documents[name]["alternatives"]):
            prediction, devices = item["prediction"], devices_of(item["plan"])
            hour = 2.5 * devices + math.ceil(devices / 8)
            step = hour / 3600 * prediction["step_time_s"]
            assert math.isclose(prediction["cost_per_step"], step, rel_tol=1e-12)
            token = step / (32 * 8192)
            assert math.isclose(prediction["cost_per_token"], token, rel_tol=1e-12)
            million = prediction["cost_per_million_tokens"]
            assert math.isclose(million, 1e6 * token, rel_tol=1e-12)
            assert prediction["currency"] == "USD"
    assert "cost_per_token" not in documents["fastest"]["prediction"]


def test_prices_alone_change_no_plan(documents: Any) -> None:
    assert documents["priced"]["plan_hash"] == documents["fastest"]["plan_hash"]
    notes = {note["path"]: note for note in documents["priced"]["assumptions"]}
    assert notes["prices.main"]["value"] == "2.5 USD, 1 USD a node-hour"


def test_the_cheapest_costs_no_more_and_is_no_faster(documents: Any) -> None:
    cheap, fast = documents["cheapest"], documents["priced"]
    assert cheap["prediction"]["cost_per_token"] <= fast["prediction"]["cost_per_token"]
    assert cheap["prediction"]["step_time_s"] >= fast["prediction"]["step_time_s"]
    assert devices_of(cheap["plan"]) < devices_of(fast["plan"])
    assert cheap["plan"]["workloads"]["main"]["objective"] == "cost"
    assert "objective" not in fast["plan"]["workloads"]["main"]


def test_the_gap_is_that_of_the_objective(documents: Any) -> None:
    for name, key in (("cheapest", "cost_per_token"), ("fastest", "step_time_s")):
        search, prediction = documents[name]["search"], documents[name]["prediction"]
        objective = search["objective"]
        assert objective["name"] == ("cost" if name == "cheapest" else "throughput")
        assert math.isclose(objective["value"], prediction[key], rel_tol=1e-12)
        assert math.isclose(
            search["gap"], objective["value"] / objective["bound"] - 1, abs_tol=1e-9
        )
        assert 0 < search["lower_bound_s"] <= prediction["step_time_s"]
    cheap, fast = documents["cheapest"], documents["fastest"]
    assert cheap["search"]["lower_bound_s"] <= fast["prediction"]["step_time_s"]


def test_what_lost_says_by_how_much_and_by_which_term(documents: Any) -> None:
    named = 0
    for name, key in (("cheapest", "cost_per_token"), ("fastest", "step_time_s")):
        main = documents[name]
        worth = {id(item): item["prediction"][key] for item in (main, *main["alternatives"])}
        for item in main["alternatives"]:
            share, _, term = item["lost_by"].partition(": ")
            found = worth[id(item)] / worth[id(main)] - 1
            assert share == f"{found:+.1%}"
            price_run = [
                {
                    term: seconds * worth[id(one)] / one["prediction"]["step_time_s"]
                    for term, seconds in one["prediction"]["breakdown_s"].items()
                }
                for one in (main, item)
            ]
            grown = {term: price_run[1][term] - price_run[0][term] for term in price_run[0]}
            assert grown[term.replace(" ", "_")] == max(grown.values())
            named += found > 0
    assert named >= 4


def test_the_simplest_of_those_that_tie_answers_where_it_is_preferred(documents: Any) -> None:
    fastest, simplest = documents["fastest"], documents["simplest"]
    tie = fastest["search"]["tie_set"]
    assert tie["within"] == WITHIN
    assert tie["size"] >= 2
    assert tie["simplest"] == simplest["plan_hash"] == simplest["search"]["tie_set"]["simplest"]
    shown = [item for item in fastest["alternatives"] if item.get("simplest")]
    assert fastest["plan_hash"] != simplest["plan_hash"]
    assert [item["plan"] for item in shown] == [simplest["plan"]]
    assert distinct(simplest["plan"]) == tie["strategies"] < distinct(fastest["plan"])
    ratio = simplest["prediction"]["step_time_s"] / fastest["prediction"]["step_time_s"]
    assert 1 <= ratio <= 1 + WITHIN
    other = next(item for item in simplest["alternatives"] if item["plan"] == fastest["plan"])
    assert other["fastest"]
    assert other["lost_by"].startswith(f"{1 / ratio - 1:+.1%} with ")
    assert "strateg" in other["lost_by"]


def distinct(plan: Any) -> int:
    stages = plan["programs"][0]["stages"]
    runs = [run for stage in stages for chunk in stage["virtual_stages"] for run in chunk]
    return len({json.dumps(run["strategy"], sort_keys=True) for run in runs})


def test_sensitivities_are_those_of_typed_rates() -> None:
    """One per cent more of a link, typed into the cluster, changes the step by as much."""
    rates = {"intra_node": 300.0, "inter_node": 25.0}

    def cluster(**more: float) -> dict[str, Any]:
        typed = {f"{n}_bandwidth_gb_per_s": r * more.get(n, 1.0) for n, r in rates.items()}
        return {"nodes": 2, "devices_per_node": 4, "device": "A100-80GB", **typed}

    sizes: dict[str, Any] = {"global_batch": 32, "seq_len": 2048, "tp": 4, "dp": 2}
    plain = sw.simulate("llama-2-7b", cluster(), shard="zero1", **sizes)
    found = {s.resource: s for s in plain.explain().report.sensitivities}
    names = {"intra_node": "intra_node.bandwidth", "inter_node": "intra_rack.bandwidth"}
    assert set(found) == {"device.flops", "device.bandwidth", *names.values()}
    for typed, resource in names.items():
        faster = sw.simulate("llama-2-7b", cluster(**{typed: 1.01}), shard="zero1", **sizes)
        change = faster.prediction.step_time_s / plain.prediction.step_time_s - 1
        assert found[resource].change == 0.01
        assert math.isclose(found[resource].step_time_change, change, rel_tol=1e-6, abs_tol=1e-12)
        assert change < -1e-6


def test_no_resource_makes_a_plan_slower_and_all_together_not_twice_as_fast(
    documents: Any,
) -> None:
    for name in documents:
        changes = {s["resource"]: s["step_time_change"] for s in documents[name]["sensitivities"]}
        assert {"device.flops", "device.bandwidth", "device.hbm"} <= set(changes)
        assert {"intra_node.bandwidth", "intra_rack.bandwidth"} <= set(changes)
        assert all(change <= 1e-12 for change in changes.values())
        of_rates = [change for name, change in changes.items() if name != "device.hbm"]
        assert -0.01 <= sum(of_rates) < -0.005


CHANGES: tuple[Any, ...] = (
    pytest.param(("--memory-gib", "10"), marks=pytest.mark.evidence),
    ("--memory-gib", "14", "--pin", "recompute=none", "--pin", "micro_batch=4"),
    ("--memory-gib", "60", "--pin", "tp=1", "--pin", "pp=1", "--pin", "shard=zero0"),
)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("flags", CHANGES)
def test_every_change_that_is_named_fits(plan: Plan, flags: tuple[str, ...]) -> None:
    asked = [*ASKED, *flags]
    asked[asked.index("2x8xH100-80GB")] = "1x8xH100-80GB"
    refused = plan(*asked)
    assert refused.code == 3
    assert len(refused.err) <= 480
    changes = refused.err.strip().partition("smallest change that fits: ")[2].split(", or ")
    assert len(changes) >= 2
    for change in changes:
        if more := re.fullmatch(r"devices with ([\d.]+) GiB", change):
            assert float(more[1]) > 79  # than those of the catalogue have; see the test below
            continue
        if "-dtype" in change:
            continue  # formats of states, which have tests of their own
        done = plan(*changed(asked, change), "--json", "-")
        assert done.code == 0, change
        assert done.document["prediction"]["feasible"]


def changed(asked: list[str], change: str) -> list[str]:
    """The command line with one of the changes that an error names."""
    made = list(asked)
    if drop := re.fullmatch(r"no --pin (.+)", change):
        at = made.index(drop[1])
        return made[: at - 1] + made[at + 1 :]
    if nodes := re.fullmatch(r"(\d+) nodes \(\d+ devices\)", change):
        made[made.index("1x8xH100-80GB")] = f"{nodes[1]}x8xH100-80GB"
        return made
    flag, value = change.split(" ")
    if flag in made:
        made[made.index(flag) + 1] = value
        return made
    return [*made, flag, value]


def test_the_smallest_memory_is_less_than_the_plan_that_came_nearest() -> None:
    asked = resolve(Inputs(model="llama-3-70b", cluster="8xH100-80GB", global_batch=8,
                           seq_len=4096, memory_gib=40))  # fmt: skip
    with pytest.raises(InfeasibleError) as caught:
        solve(asked)
    error = caught.value
    assert error.need_bytes is not None
    amount = re.search(r"devices with (\d+(?:\.\d+)?) GiB", str(error))
    assert amount is not None
    assert 40 < float(amount[1]) <= math.ceil(error.need_bytes / 2**30 * 10) / 10


def test_largest_in_the_document_and_on_the_terminal(plan: Plan) -> None:
    asked = ("--model", "gpt2", "--cluster", "1xA100-80GB", "--seq-len", "1024",
             "--memory-gib", "8", "--objective", "largest-batch:4",
             "--pin", "recompute=none")  # fmt: skip
    document = plan(*asked, "--json", "-").document
    found = document["search"]["largest"]
    assert document["search"]["objective"]["name"] == "largest-batch"
    assert document["plan"]["workloads"]["main"]["global_batch"] == found["size"]
    assert (found["what"], found["grain"], found["size"] % 4) == ("global_batch", 4, 0)
    assert found["beyond"] == found["size"] + 4
    tried = {item["size"]: item["fits"] for item in found["tried"]}
    assert tried[found["size"]] is True
    assert tried[found["beyond"]] is False
    shown = plan(*asked).out
    assert f"largest: {found['size']} samples a step fit, {found['beyond']} do not" in shown
    schedule = document["plan"]["programs"][0]["schedule"]
    assert schedule["microbatches"] == len(document["plan"]["programs"][0]["stages"])
    left_out = [item["what"] for item in document["search"]["left_out"]]
    assert "gradient accumulation" in left_out


def test_the_terminal_says_what_it_costs_and_what_ties(plan: Plan, tmp_path: Path) -> None:
    prices = tmp_path / "prices.json"
    prices.write_text('{"currency": "CHF", "device_hour": {"main": 3}}')
    result = plan(*ASKED, "--objective", "cost", "--prices", str(prices))
    assert result.code == 0
    for words in (
        "\ncost: ", " CHF a million tokens   ", " CHF a step\n", "\n1 % more of: FLOP/s -0.",
        "\nties: ", "prices.main", "above the proven", "cost nothing",
    ):  # fmt: skip
        assert words in result.out, words


def test_python_takes_prices_as_they_are_and_refuses_others() -> None:
    asked: dict[str, Any] = {"global_batch": 8, "seq_len": 1024, "objective": "cost", "top": 0,
                             "pins": PLAIN[::2]}  # fmt: skip
    rows = {"currency": "EUR", "device_hour": {"A100": 1.0}}
    found = sw.plan("gpt2", "2xA100-80GB", prices=rows, **asked)
    assert found.prediction.currency == "EUR"
    assert sum(s.device_count for s in found.plan.program.stages) == 1
    with pytest.raises(InputError, match=r"^prices: got nothing"):
        sw.plan("gpt2", "2xA100-80GB", **asked)
    bad = {"currency": "EUR", "device_hour": {"A100": 1.0, "H1": 2.0}}
    with pytest.raises(InputError, match=r"^prices: device_hour: got H1; .*nearest: H100"):
        sw.plan("gpt2", "2xA100-80GB", prices=bad, **asked)
    with pytest.raises(InputError, match=r"^prefer: got faster; allowed: simple, simple:"):
        sw.plan("gpt2", "2xA100-80GB", global_batch=8, seq_len=1024, prefer="faster")


def test_groups_are_priced_apart() -> None:
    """On two groups the cheapest plan is on the one whose price makes it so."""
    sizes: dict[str, Any] = {"global_batch": 16, "seq_len": 1024, "objective": "cost"}
    sizes["pins"] = PLAIN
    cluster = "1x4xH100-80GB+1x4xA100-80GB"
    for cheap, dear in (("h100", "a100"), ("a100", "h100")):
        rows = {"currency": "USD", "device_hour": {cheap: 0.01, dear: 10.0}}
        found = sw.plan("gpt2", cluster, prices=rows, **sizes)
        used = {part.device_group for s in found.plan.program.stages for part in s.devices}
        assert used == {cheap}
        search = found.report.search
        assert search is not None
        hashes = [a.plan.hash for a in found.report.alternatives if a.simplest]
        assert search.tie_set.simplest in (*hashes, found.plan.hash)


@pytest.mark.timeout(180)
def test_the_model_does_not_tell_plans_that_tie_apart() -> None:
    """Pairs of published layouts: the predicted ratio is off by more than a tie, mostly."""
    groups: dict[Any, dict[Any, list[PricedRun]]] = {}
    runs = [run for run in published_runs(TABLE) if run.source_name in ("bloom", "bridge")]
    for run in runs:
        with suppress(InputError):
            row = price_run(run)
            question, layout = (
                tuple(getattr(run, n) for n in names)
                for names in (QUESTION_COLUMNS, LAYOUT_COLUMNS)
            )
            if row.measured_s is not None:
                groups.setdefault(question, {}).setdefault(layout, []).append(row)
    errors = []
    for layouts in groups.values():
        points = [
            math.log(rows[0].predicted_s / statistics.median(row.measured_s or 0 for row in rows))
            for rows in layouts.values()
        ]
        errors += [abs(a - b) for a, b in itertools.combinations(points, 2)]
    assert len(errors) >= 50
    assert statistics.median(errors) > WITHIN
