"""``losses.csv``: whole rows at any moment, across resumes, and after a disk that is full."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from shardwright.executor.train.loss_file import COLUMNS, NAME, LossFile, earlier_rows
from shardwright.spec.errors import InputError


def event(step: int, **changed: Any) -> dict[str, Any]:
    return {"step": step, "loss": 5 - step / 10, "gradient_norm": 0.5, "time_s": 0.25, **changed}


def steps_in(folder: Path) -> list[int]:
    with (folder / NAME).open(newline="") as file:
        return [int(row["step"]) for row in csv.DictReader(file)]


def kept(folder: Path, done: int = 0, resumed: Path | None = None) -> LossFile:
    def refuse(text: str) -> None:
        raise AssertionError(text)

    return LossFile(folder, done, resumed, refuse)


def test_a_row_is_there_as_soon_as_its_step_is_done(tmp_path: Path) -> None:
    losses = kept(tmp_path / "run")
    losses.add(event(1))
    losses.add(event(2, gradient_norm=None))
    text = (tmp_path / "run" / NAME).read_text()
    assert text == "step,loss,gradient_norm,seconds\n1,4.9,0.5,0.25\n2,4.8,,0.25\n"


def test_a_resumed_run_goes_on_after_the_rows_of_its_checkpoint(tmp_path: Path) -> None:
    first = kept(tmp_path)
    for step in range(1, 8):
        first.add(event(step))
    with (tmp_path / NAME).open("a") as file:
        file.write("8,4.")  # of a run that was killed
    again = kept(tmp_path, done=5, resumed=tmp_path)
    again.add(event(6))
    assert steps_in(tmp_path) == [1, 2, 3, 4, 5, 6]
    elsewhere = kept(tmp_path / "other", done=3, resumed=tmp_path)
    elsewhere.add(event(4))
    assert steps_in(tmp_path / "other") == [1, 2, 3, 4]
    anew = kept(tmp_path)
    anew.add(event(1))
    assert steps_in(tmp_path) == [1]


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "\ufeff\n", "step\n1\n"])
def test_rows_of_another_file_are_not_taken_for_ours(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text, encoding="utf-8")
    assert earlier_rows(tmp_path / NAME, 10) == []
    (tmp_path / NAME).write_bytes(b"\xff\xfe")
    assert earlier_rows(tmp_path / NAME, 10) == []
    (tmp_path / NAME).write_text(",".join(COLUMNS) + "\n1,2,3,4\n2,x,3\n3,1,1,1\n")
    assert earlier_rows(tmp_path / NAME, 2) == [["1", "2", "3", "4"]]


def test_a_full_disk_ends_the_file_and_not_the_run(tmp_path: Path) -> None:
    said: list[str] = []
    losses = LossFile(tmp_path, 0, None, said.append)
    losses.add(event(1))
    losses.path = Path("/dev/full")
    losses.add(event(2))
    losses.path = tmp_path / NAME
    losses.add(event(3))
    assert said == ["/dev/full ends with step 1: No space left on device"]
    assert steps_in(tmp_path) == [1]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"^--out-dir: got .*a folder"):
        kept(tmp_path / "file" / "run")
