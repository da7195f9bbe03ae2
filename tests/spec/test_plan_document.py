"""Plan documents: canonical, byte-stable, and nothing broken gets in."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from checks.plan_checks import run_mutants, verdict
from generators.samples import sample
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.spec import codec
from shardwright.spec.errors import InputError
from shardwright.spec.plan.plan import SCHEMA_VERSION, Plan, load_plan

SEEDS = st.integers(0, 400)
MUTANTS = 600


@given(SEEDS)
@settings(max_examples=60)
def test_documents_round_trip_byte_by_byte(seed: int) -> None:
    plan = sample(seed).plan
    text = codec.canonical_json(plan.to_document())
    read = load_plan(text, "plan")
    assert read == plan
    assert codec.canonical_json(read.to_document()) == text
    assert read.hash == plan.hash
    shuffled = json.dumps(dict(reversed(json.loads(text).items())), indent=3)
    assert load_plan(shuffled, "plan").hash == plan.hash
    assert load_plan(json.dumps({"plan": json.loads(text), "other": 1}), "report") == plan


@given(SEEDS, SEEDS)
@settings(max_examples=60)
def test_hashes_tell_plans_apart(one: int, other: int) -> None:
    a, b = sample(one).plan, sample(other).plan
    assert (a.hash == b.hash) == (a == b)


@given(SEEDS)
@settings(max_examples=40)
def test_defaults_are_left_out_and_mean_the_same_when_written(seed: int) -> None:
    plan = sample(seed).plan
    document = json.loads(codec.canonical_json(plan.to_document()))
    text = json.dumps(document)
    assert '"techniques"' not in text
    assert '"cp"' not in text
    for stage in document["programs"][0]["stages"]:
        stage["mesh_order"] = ["dp", "cp", "tp"]
        for parts in stage["virtual_stages"]:
            for part in parts:
                part.setdefault("strategy", {}).setdefault("cp", 1)
    assert load_plan(json.dumps(document), "plan").hash == plan.hash


def test_mutants_are_refused_or_simulate() -> None:
    found = run_mutants(MUTANTS)
    assert sum(found.values()) == MUTANTS
    assert found["refused"] > MUTANTS / 2
    assert found["simulated"] > MUTANTS / 50
    assert set(found) <= {"refused", "simulated", "too large to simulate"}, Counter(found)


def document_of(seed: int = 1) -> dict[str, object]:
    loaded: dict[str, object] = json.loads(codec.canonical_json(sample(seed).plan.to_document()))
    return loaded


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"schema_version": SCHEMA_VERSION + 1}, "newer"),
        ({"phases": []}, "reserved"),
        ({"programs": []}, "programs"),
        ({"tables": {}}, "reserved"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, object], word: str) -> None:
    with pytest.raises(InputError, match=word):
        load_plan(json.dumps({**document_of(), **change}), "plan")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "1", '"plan"', "{}", '{"a": 1, "a": 2}', "NaN", "[" * 100_000, "\x00"],
)
def test_what_is_no_plan_is_refused(text: str) -> None:
    assert verdict(text, sample(1).space.stack) == "refused"


def test_duplicate_keys_and_infinities_are_refused() -> None:
    text = codec.canonical_json(sample(1).plan.to_document())
    for broken in (
        text.replace('"schema_version":1', '"schema_version":1,"schema_version":1'),
        text.replace('"seq_len":', '"seq_len":Infinity,"x":'),
        text[:-1],
        text + text,
    ):
        assert broken != text
        assert verdict(broken, sample(1).space.stack) == "refused"


def test_every_violation_is_listed_not_only_the_first() -> None:
    plan = sample(1).plan
    workload = codec.from_document(
        type(plan.workload), {**codec.to_document(plan.workload), "global_batch": 997}, "workload"
    )
    broken = Plan(
        models=plan.models,
        cluster=plan.cluster,
        workloads={"main": workload},
        programs=plan.programs,
        techniques={"nothing": 1},
    )
    paths = [violation.path for violation in broken.check()]
    assert "techniques" in paths
    assert any("schedule" in path for path in paths)


def changed(path: tuple[str | int, ...], value: object) -> str:
    """The document of a two-device plan with one value replaced."""
    seed = next(s for s in range(50) if sample(s).plan.cluster.device_count > 1)
    document = document_of(seed)
    holder: object = document
    for key in path[:-1]:
        holder = holder[key]  # type: ignore[index]
    holder[path[-1]] = value  # type: ignore[index]
    return json.dumps(document)


@pytest.mark.parametrize(
    ("path", "value", "word"),
    [
        (("models", "main", "towers", 0, "layers", 1, "count"), 2**40, "layers; needs at most"),
        (("cluster", "levels"), [], "level that joins all 2"),
        (("cluster", "groups"), [], "device groups"),
    ],
)
def test_what_would_break_the_simulation_is_refused(
    path: tuple[str | int, ...], value: object, word: str
) -> None:
    with pytest.raises(InputError, match=word):
        load_plan(changed(path, value), "plan")


def test_a_second_device_group_without_levels_of_its_own_is_refused() -> None:
    plan = sample(1).plan
    group = codec.to_document(plan.cluster.groups[0])
    text = changed(("cluster", "groups"), [group, {**group, "name": "other", "device": "cpu"}])
    with pytest.raises(InputError, match=r"groups\.0\.levels: got none"):
        load_plan(text, "plan")


def test_sizes_beyond_64_bits_are_one_line_not_an_overflow() -> None:
    text = changed(("workloads", "main", "seq_len"), 2**40)
    assert verdict(text, sample(1).space.stack) in ("refused", "too large to simulate")
    block = ("models", "main", "towers", 0, "layers", 1, "layer")
    wide = changed((*block, "attention", "heads"), 2**40)
    assert verdict(wide, sample(1).space.stack) in ("refused", "too large to simulate")


def test_messages_stay_one_printable_line() -> None:
    for value in ("x" * 5000, "\u202e\n\x1b[31m", "a\tb"):
        error = InputError(value, value, value, value)
        assert str(error).isprintable()
        assert len(str(error)) < 1500
