"""Conformance of a stage of data recipes; a class a stage names it and its settings."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, ClassVar

import pytest
from checks.toy_data_stages import STAGES

from shardwright.datasets.preparation import ledger
from shardwright.datasets.preparation import prepare as engine
from shardwright.datasets.preparation.prepare import PrepareSettings, prepare
from shardwright.datasets.preparation.result import read_data
from shardwright.datasets.recipes.recipe import Recipe, recipe_of

STAGES_AT = "checks.toy_data_stages:STAGES"
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa")
Record = dict[str, Any]


def generated_texts(count: int, seed: int) -> list[Record]:
    """Texts with exact and near copies, and sentences that many have."""
    draw = random.Random(seed)
    records: list[Record] = []
    for number in range(count):
        kind = draw.random()
        if records and kind < 0.15:
            text = draw.choice(records)["text"]
        elif records and kind < 0.3:
            text = draw.choice(records)["text"] + " One more sentence follows here.\n"
        else:
            lines = [
                " ".join(draw.choices(WORDS, k=draw.randint(4, 12))) + f" {draw.randint(0, 999)}."
                for _ in range(draw.randint(2, 30))
            ]
            text = "All rights reserved by the authors 2020.\n" + "\n".join(lines) + "\n"
        records.append({"id": f"doc{number}", "text": text, "part": number % 2})
    return records


def written(folder: Path, records: list[Record], shards: int, seed: int) -> None:
    """The records of two sources, in an order and number of shards by choice; some as seeds."""
    (folder / "seeds.jsonl").parent.mkdir(parents=True, exist_ok=True)
    (folder / "seeds.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records[:3]))
    for part in (0, 1):
        mine = [record for record in records if record["part"] == part]
        random.Random(seed).shuffle(mine)
        place = folder / f"source{part}"
        place.mkdir(parents=True)
        for shard in range(shards):
            lines = [json.dumps(record) + "\n" for record in mine[shard::shards]]
            (place / f"shard-{shard}.jsonl").write_text("".join(lines))


def recipe_with(stage: str, settings: Record, **more: Any) -> Recipe:
    sources = [
        {"name": f"source{part}", "domain": f"domain{part}", "path": f"source{part}"}
        for part in (0, 1)
    ]
    used = {"stages": [{stage: settings}]} if stage not in ("mixture", "windows") else {}
    last = {stage: settings} if not used else {}
    return recipe_of({"sources": sources, **used, **last, **more}, "recipe", STAGES)


def result_bytes(out: Path) -> dict[str, bytes]:
    """Content of a result, less the seconds that it took."""
    files = {path.name: path.read_bytes() for path in out.iterdir()}
    document = json.loads(files["data.json"])
    document.pop("seconds")
    return {**files, "data.json": json.dumps(document, sort_keys=True).encode()}


class StoppedError(Exception):
    """Stands for a kill."""


class DataStageSuite:
    """What every stage keeps to."""

    stage: ClassVar[str]
    settings: ClassVar[Record] = {}

    @pytest.fixture
    def recipe(self) -> Recipe:
        return recipe_with(self.stage, self.settings)

    def test_ends_in_one_entry_of_the_tuple(self) -> None:
        (found,) = [stage for stage in STAGES if stage.name == self.stage]
        assert found.help.endswith(".")
        assert (found.decide is not None) == (found.scope == "corpus")

    def test_same_bytes_whatever_order_shards_and_processes(
        self, recipe: Recipe, tmp_path: Path
    ) -> None:
        records = generated_texts(60, seed=1)
        results = []
        for shards, seed in ((1, 0), (3, 1), (5, 2)):
            folder = tmp_path / f"{shards}"
            written(folder, records, shards, seed)
            prepare(recipe, folder, folder / "out", STAGES)
            results.append(result_bytes(folder / "out"))
        assert results[0] == results[1] == results[2]

    def test_every_token_is_kept_cut_or_dropped_by_name(
        self, recipe: Recipe, tmp_path: Path
    ) -> None:
        written(tmp_path, generated_texts(60, seed=2), 2, 0)
        prepare(recipe, tmp_path, tmp_path / "out", STAGES)
        given = None
        for stage in read_data(tmp_path / "out")["stages"]:
            assert stage["total"] == ledger.summed(stage["domains"].values())
            assert all(ledger.is_balanced(row) for row in stage["domains"].values())
            assert all([*stage["total"]["dropped"], *stage["total"]["cut"]])
            assert given is None or given == stage["total"]["in"]
            given = stage["total"]["out"]

    def test_stopped_anywhere_it_goes_on_to_the_same_bytes(
        self, recipe: Recipe, tmp_path: Path
    ) -> None:
        written(tmp_path, generated_texts(40, seed=3), 2, 0)
        events = 0

        def count(event: Record) -> None:
            nonlocal events
            events += 1

        prepare(recipe, tmp_path, tmp_path / "whole", STAGES, None, count)
        for stop in random.Random(4).sample(range(events), 3):
            out = tmp_path / f"stopped{stop}"
            self._stopped(recipe, tmp_path, out, stop)
            prepare(recipe, tmp_path, out, STAGES)
            assert result_bytes(out) == result_bytes(tmp_path / "whole")
            assert not (out / engine.WORK).exists()

    def _stopped(self, recipe: Recipe, folder: Path, out: Path, stop: int) -> None:
        left = stop

        def on_event(event: Record) -> None:
            nonlocal left
            if left == 0:
                raise StoppedError
            left -= 1

        with pytest.raises(StoppedError):
            prepare(recipe, folder, out, STAGES, PrepareSettings(), on_event)
        assert not (out / "data.json").exists()
