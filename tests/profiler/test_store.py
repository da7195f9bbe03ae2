"""Which stored profile is used: of this machine, of as many ranks, the newest, readable."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from generators.random_spaces import random_profile

import shardwright
from shardwright.api.execution import execution
from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.profiler.store import profiles as store
from shardwright.profiler.store.partial_profile import (
    PartialProfile,
    load_partial,
    remove_partial,
    save_partial,
)
from shardwright.spec.cluster.machine_profile import MachineProfile
from shardwright.spec.errors import InputError
from shardwright.spec.report.report import Assumption


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of profiles."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    store.profile_folder().mkdir(parents=True)
    return store.profile_folder()


def stored(ranks: int, minute: int = 0) -> Path:
    found = random_profile(random.Random(0), parse_cluster("local:2").cluster)
    assert found is not None
    moment = f"2026-01-01T00:{minute:02}:00Z"
    mine = store.fingerprint()
    return store.save_profile(replace(found, ranks=ranks, measured_at=moment, fingerprint=mine))


def local(ranks: int) -> tuple[MachineProfile | None, dict[str, Assumption]]:
    problem = resolve(Inputs(model="gpt2", cluster=f"local:{ranks}", global_batch=8, seq_len=64))
    return problem.measured, {note.path: note for note in problem.assumptions}


def test_the_newest_of_as_many_ranks_is_used() -> None:
    for ranks, minute in ((2, 1), (2, 3), (2, 2), (4, 9)):
        stored(ranks, minute)
    profile, notes = local(2)
    assert profile is not None
    assert (profile.ranks, profile.measured_at) == (2, "2026-01-01T00:03:00Z")
    assert not any(path.startswith("calibration") for path in notes)


def test_another_number_of_ranks_is_named_and_not_used() -> None:
    stored(2)
    stored(4)
    profile, notes = local(3)
    assert profile is None
    assert "with 2 and 4 ranks at work, not with 3" in notes["calibration"].why
    assert "local:3" in notes["calibration"].why


def test_execution_measures_what_was_measured_with_other_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored(2)
    asked: list[int] = []

    def measure(budget_s: float, ranks: int, on_event: object) -> MachineProfile:
        asked.append(ranks)
        profile = store.newest_profile(2)
        assert profile is not None
        return replace(profile, ranks=ranks)

    monkeypatch.setattr(execution, "measure", measure)
    for ranks in (2, 3, 3):
        assert execution.ensure_profile(ranks, lambda event: None).ranks == ranks
    assert asked == [3]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"[]", b'{"schema_version": 99}', b"[" * 100_000]
)
def test_a_file_that_cannot_be_read_is_skipped_and_named(content: bytes) -> None:
    stored(2, 1)
    bad = stored(2, 2)
    bad.write_bytes(content)
    profile, notes = local(2)
    assert profile is not None
    assert profile.measured_at == "2026-01-01T00:01:00Z"
    assert bad.name in notes["calibration.skipped"].value
    assert "calibration" not in notes


def test_without_a_readable_file_rates_are_analytic() -> None:
    bad = stored(2)
    bad.unlink()
    bad.mkdir()
    profile, notes = local(2)
    assert profile is None
    assert bad.name in notes["calibration.skipped"].value
    assert notes["calibration"].value == "none"


def test_a_file_whose_content_is_not_what_its_name_says_is_skipped() -> None:
    path = stored(4)
    path.rename(path.with_name(path.name.replace("-4-", "-2-")))
    profile, notes = local(2)
    assert profile is None
    assert "4 ranks" in notes["calibration.skipped"].value


def test_files_of_other_machines_are_not_opened(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "0123456789abcdef-2-20260101T000000Z.json").write_text("{")
    kept = stored(2)
    opened: list[Path] = []
    real = store.read_text

    def read_text(path: Path, what: str) -> str:
        opened.append(path)
        return real(path, what)

    monkeypatch.setattr(store, "read_text", read_text)
    profile, notes = local(2)
    assert profile is not None
    assert set(opened) == {kept}
    assert "calibration.skipped" not in notes


def test_the_fingerprint_names_what_host_constants_rest_on() -> None:
    facts = store.machine_facts()
    assert facts["shardwright"] == shardwright.__version__
    assert facts["threads_per_rank"] == "1"
    before = store.fingerprint()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "__version__", "0.0.0")
        assert store.fingerprint() != before


def test_a_fingerprint_does_not_load_torch() -> None:
    code = (
        "import sys; from shardwright.profiler.store.profiles import fingerprint, newest_profile;"
        "fingerprint(); newest_profile(2); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_where_nothing_can_be_stored_the_measurement_serves_this_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stored(2)
    profile = store.newest_profile(2)
    assert profile is not None
    profile = replace(profile, ranks=3, measured_at="2026-02-02T00:00:00Z")
    monkeypatch.setattr(store, "_UNSAVED", [])
    monkeypatch.setattr(execution, "measure", lambda *given: profile)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    events: list[dict[str, object]] = []
    assert execution.ensure_profile(3, events.append) == profile
    assert [event["phase"] for event in events] == ["profile", "unsaved"]
    assert "a writable folder" in str(events[1]["why"])
    assert store.newest_profile(3) == profile
    assert local(3)[0] == profile
    assert store.newest_profile(2) is None
    partial = PartialProfile(profile=profile, finished=("links",), coarse=True)
    save_partial(partial)  # nothing to resume from, and no error
    assert load_partial(profile, coarse=True, storage="") is None
    remove_partial(profile)


def test_measuring_for_later_needs_a_folder_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    with pytest.raises(InputError, match="a writable folder"):
        store.require_writable_folder()
