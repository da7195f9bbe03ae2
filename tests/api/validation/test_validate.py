"""``plan validate``: what is priced, skipped and scored of a table of runs."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from shardwright.api.cli.main import run
from shardwright.api.html.validation_svg import LEFT, SIZE, TOP, LogScale, validation_svg
from shardwright.api.validation.validate import NO_SECONDS, validate, validation_result
from shardwright.datasets.published.runs import MEMORY_TABLE, TABLE
from shardwright.spec.errors import InputError

KEPT = ("titan-", "bloom-00", "mpt-000", "sc21-")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some rows of four sources."""
    path = tmp_path_factory.mktemp("runs") / "some.csv"
    with TABLE.open(encoding="utf-8", newline="") as source:
        reader = csv.DictReader(source)
        rows = [row for row in reader if row["id"].startswith(KEPT)]
        write(path, rows)
    return path


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture(scope="module")
def document(table: Path) -> dict[str, Any]:
    return validate(table)


def test_every_row_is_priced_or_skipped_with_a_reason(document: dict[str, Any]) -> None:
    assert document["rows_read"] == document["rows_priced"] + sum(document["rows_skipped"].values())
    assert document["rows_read"] == sum(r["rows_read"] for r in document["by_source"].values())
    assert document["rows_priced"] > 20
    assert set(document["by_source"]) == {"titan", "bloom", "mpt", "sc21"}


def test_a_source_has_errors_baselines_and_what_was_assumed(document: dict[str, Any]) -> None:
    titan = document["by_source"]["titan"]
    assert titan["fitted_on"] == []
    assert titan["assumed_fields"]
    assert 0 < titan["median_ape"] <= titan["p90_ape"]
    for baseline in ("constant_mfu", "six_n_tokens"):
        assert titan["baselines"][baseline]["median_ape"] > 0
    assert 0 <= titan["interval"]["holds"] <= 1
    bloom = document["by_source"]["bloom"]
    assert bloom["groups"] >= 1
    assert -1 <= bloom["spearman"] <= 1
    assert bloom["top1_regret"] >= 0


def test_a_row_without_seconds_is_skipped(table: Path, tmp_path: Path) -> None:
    with table.open(encoding="utf-8", newline="") as source:
        rows = list(csv.DictReader(source))[:3]
    rows[0]["step_time_s"] = rows[0]["tokens_per_s_per_gpu"] = ""
    rows[1]["layers"] = ""
    write(tmp_path / "t.csv", rows)
    found = validate(tmp_path / "t.csv")
    assert found["rows_priced"] == 1
    assert found["rows_skipped"][NO_SECONDS] == 1
    assert any(why.startswith("layers") for why in found["rows_skipped"])


def test_a_cell_that_cannot_be_read_leaves_out_its_row(table: Path, tmp_path: Path) -> None:
    with table.open(encoding="utf-8", newline="") as source:
        rows = list(csv.DictReader(source))[:4]
    whole = [{**row, "stack": "torchtitan:attention_kernels=3"} for row in rows]
    write(tmp_path / "t.csv", whole)
    everything = validate(tmp_path / "t.csv")
    assert everything["rows_priced"] == 4
    whole[1]["hidden"], whole[2]["stack"] = "wide", "torchtitan:attention_kernels=4"
    whole[3]["id"] = whole[0]["id"]
    write(tmp_path / "t.csv", whole)
    found = validate(tmp_path / "t.csv")
    assert (found["rows_read"], found["rows_priced"]) == (4, 1)
    assert sorted(found["rows_skipped"].values()) == [1, 1, 1]
    line, name, setting = sorted(found["rows_skipped"])
    assert line == "line 3: hidden: got wide; allowed: a number, or nothing"
    assert name == f"line 5: id: got {rows[0]['id']}; allowed: an id that no other row has"
    assert setting.startswith("stack: got attention_kernels=4;")
    (source_name,) = found["by_source"]
    assert found["median_ape"] == found["by_source"][source_name]["median_ape"]


def test_a_table_of_nothing_but_unreadable_rows_is_scored_as_such(tmp_path: Path) -> None:
    header = TABLE.read_text(encoding="utf-8").splitlines()[0]
    (tmp_path / "t.csv").write_text(f"{header}\nx,y\n", encoding="utf-8")
    found = validate(tmp_path / "t.csv")
    assert (found["rows_read"], found["rows_priced"], found["by_source"]) == (1, 0, {})


def test_the_verb_prints_a_line_a_source_and_writes_json(
    table: Path, document: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["validate", "--data", str(table)]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in document["by_source"])
    assert run(["validate", "--data", str(table), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == document


def test_a_table_of_memory_is_told_by_its_columns(tmp_path: Path) -> None:
    with MEMORY_TABLE.open(encoding="utf-8", newline="") as source:
        rows = [r for r in csv.DictReader(source) if r["id"].startswith(("titan", "bskill"))]
    write(tmp_path / "m.csv", rows)
    found = validate(tmp_path / "m.csv")
    assert found["metric"] == "peak_memory"
    assert found["rows_read"] == len(rows)
    assert found["rows_priced"] + sum(found["rows_skipped"].values()) == len(rows)
    assert found["out_of_memory"] >= found["false_fit"] >= 0
    assert found["baselines"]["static"]["median_ape"] > 0
    assert set(found["by_source"]) == {"titan", "bskill"}
    assert run(["validate", "--data", str(tmp_path / "m.csv")]) == 0


def test_an_empty_table_is_refused(table: Path, tmp_path: Path) -> None:
    header = table.read_text(encoding="utf-8").splitlines()[0]
    (tmp_path / "t.csv").write_text(header + "\n", encoding="utf-8")
    with pytest.raises(InputError, match="no rows"):
        validate(tmp_path / "t.csv")


def test_odd_files_and_cells_are_refused_or_skipped_in_one_line(
    table: Path, tmp_path: Path
) -> None:
    text = table.read_text(encoding="utf-8")
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode("utf-16"))
    with pytest.raises(InputError, match="a CSV file in UTF-8"):
        validate(path)
    path = tmp_path / "bom.csv"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert validate(path)["rows_priced"] == validate(table)["rows_priced"]
    path = tmp_path / "short.csv"
    path.write_text("\n".join([*text.splitlines()[:2], "mpt-1,cut"]), encoding="utf-8")
    assert next(iter(validate(path)["rows_skipped"])).startswith("line 3: got 2 cells")


def test_a_device_without_bf16_and_a_row_of_no_devices_are_no_faults(
    table: Path, tmp_path: Path
) -> None:
    with table.open(encoding="utf-8", newline="") as source:
        rows = [row for row in csv.DictReader(source) if row["id"].startswith("mpt")][:2]
    rows[0] |= {"hardware": "Tesla V100", "dtype": "fp16"}
    rows[1]["gpus"] = "0"
    write(tmp_path / "t.csv", rows)
    found = validate(tmp_path / "t.csv")
    assert found["rows_priced"] == 1
    assert found["rows_skipped"] == {"gpus: got 0; allowed: a row with this field": 1}


def test_the_plot_has_a_mark_a_row_and_the_median_of_each_source(
    table: Path, document: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plot.svg"
    assert run(["validate", "--data", str(table), "--plot", str(path), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == document
    root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    kinds = [element.tag.rpartition("}")[2] for element in root.iter()]
    priced = {n: s for n, s in document["by_source"].items() if s["rows_priced"]}
    assert kinds.count("title") == document["rows_priced"] + len(priced)
    texts = [element.text or "" for element in root.iter()]
    for name, source in priced.items():
        assert f"{name}: {source['rows_priced']} rows, {source['median_ape']:.1%}" in texts
    assert [p.name for p in tmp_path.iterdir()] == ["plot.svg"]


def test_equal_errors_lie_equally_far_from_the_diagonal() -> None:
    scale = LogScale([0.1, 1, 100.0])
    off = [(scale.x(m) - LEFT) - (TOP + SIZE - scale.y(1.2 * m)) for m in (0.2, 3.0, 40.0)]
    assert off == pytest.approx([off[0]] * 3)
    assert all(0.1 <= tick <= 100 for tick in scale.ticks())


def test_a_plot_of_nothing_and_a_plot_that_is_no_svg(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ElementTree.fromstring(validation_svg("none", "seconds", {"a": []})).tag.endswith("svg")
    assert run(["validate", "--data", str(table), "--plot", str(tmp_path / "plot.gif")]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "a file ending in .svg" in said
    assert "plot.svg" in said.replace(" ", "")


def test_a_plot_of_memory_shows_memory_though_rows_were_timed_too(tmp_path: Path) -> None:
    with MEMORY_TABLE.open(encoding="utf-8", newline="") as source:
        rows = [row for row in csv.DictReader(source) if row["id"].startswith("mlmtest")][:3]
    for row in rows:
        row |= {"metric_kind": "", "step_time_s": "12345"}
    write(tmp_path / "t.csv", rows)
    points = [
        pair for pairs in validation_result(tmp_path / "t.csv").points.values() for pair in pairs
    ]
    assert points
    assert all(0 < value < 200 for pair in points for value in pair)
