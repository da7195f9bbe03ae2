"""No code comes from data: what is read or sent is never unpickled, compiled, or fetched elsewhere.

Audit hooks watch: one in a process that loads every kind of document twice, one in every process of
a service. What is imported at the first reading compiles and executes modules, so the second one is
held to none of that at all. (Numpy parses the heads of its files as literals, which compiles but
executes nothing.)
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from service.request_bodies import PLAN, QUESTION
from service.services import start_service, stop_service

from shardwright.api.server.openapi.profiles import PROFILE_EXAMPLE

SUPPORT = Path(__file__).parents[2] / "support"
LOADS = """
import sys, tempfile
from pathlib import Path

watched, seen = {"pickle.find_class", "os.system", "subprocess.Popen", "socket.connect"}, []


def hook(event, arguments):
    if event in watched:
        seen.append(f"{event} {str(arguments)[:100]}")


sys.addaudithook(hook)
sys.path.insert(0, sys.argv[1])
import numpy as np
import torch
from ranks.checkpoint_files import two_ranks, write
from runner.fuzz_files import kinds
from shardwright.costmodel.kernel_latency.forest import read_forest
from shardwright.costmodel.kernel_latency.shipped_forests import FOLDER
from shardwright.datasets.measured.timed_grid import read_timed_grid
from shardwright.executor.checkpoint.integrity import damages
from shardwright.executor.checkpoint.loader import FoundCheckpoint, load_slices
from shardwright.executor.checkpoint.manifest import read_manifest


def load(folder, checkpoint):
    loaded = 0
    for name, kind in kinds().items():
        for whole in kind.whole:
            path = folder / name / kind.file
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(whole)
            kind.read(path)
            loaded += 1
    for path in sorted(FOLDER.glob("*.npz")):
        if path.stem == "programs":
            with np.load(path, allow_pickle=False) as arrays:
                [arrays[name] for name in arrays.files]
        else:
            read_forest(path)
        loaded += 1
    for path in sorted(FOLDER.glob("*.npy")):
        read_timed_grid(path.with_suffix(".json"))
        loaded += 1
    manifest = read_manifest(checkpoint)
    assert damages(checkpoint, manifest) == []
    load_slices(FoundCheckpoint(checkpoint, manifest), two_ranks(1)[0])
    return loaded + 1


with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    checkpoint = write(folder / "saved", 20, two_ranks(0))
    del seen[:]
    load(folder, checkpoint)
    watched |= {"exec", "import"}
    loaded = load(folder, checkpoint)
watched.clear()
print(loaded)
print("\\n".join(seen))
"""
SITE = """
import os, sys
TARGET = {target!r}

def note(what):
    with open(os.path.join(TARGET, f"{{os.getpid()}}.txt"), "a") as file:
        file.write(what + "\\n")

def hook(event, arguments):
    if event in ("pickle.find_class", "os.system"):
        note(f"BAD {{event}} {{str(arguments)[:200]}}")
    elif event == "socket.connect" and isinstance(arguments[1], tuple):
        if arguments[1][0] not in ("127.0.0.1", "::1", "localhost"):
            note(f"BAD {{event}} {{arguments[1]}}")

if any("shardwright.api" in word for word in sys.orig_argv):
    note("watched " + " ".join(sys.orig_argv[1:6]))
    sys.addaudithook(hook)
"""


def test_loading_executes_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADS, str(SUPPORT)], capture_output=True, text=True, check=False,
        timeout=100, env={**os.environ, "PYTHONSAFEPATH": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    loaded, _, seen = done.stdout.partition("\n")
    assert int(loaded) >= 20
    assert seen.strip() == ""


def test_a_planted_pickle_is_seen() -> None:
    """The hook sees what it is there for."""
    planted = LOADS.replace("del seen[:]", "import pickle; pickle.loads(b'cos\\nsystem\\n.')")
    done = subprocess.run(
        [sys.executable, "-c", planted, str(SUPPORT)], capture_output=True, text=True, check=True,
        timeout=100, env={**os.environ, "PYTHONSAFEPATH": "1"},
    )  # fmt: skip
    assert "pickle.find_class" in done.stdout


@pytest.mark.timeout(120)
def test_serving_unpickles_nothing_and_stays_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, site = tmp_path / "notes", tmp_path / "site"
    notes.mkdir()
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE.format(target=str(notes)))
    known = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", f"{site}:{known}" if known else str(site))
    service = start_service(tmp_path, "--db", f"sqlite:///{tmp_path}/jobs.sqlite")
    with httpx.Client(base_url=service.url, timeout=60) as client:
        wait = {"Prefer": "wait=30"}
        found = client.post("/v1/plans", json=PLAN, headers=wait)
        assert found.status_code == 200, found.text
        simulated = client.post(
            "/v1/simulations", json={**QUESTION, "strategy": {"tp": 1, "dp": 2}}
        )
        assert simulated.status_code == 200
        question = {"plan": found.json()["plan"], "set": {"intra_node.bandwidth": "2x"}}
        asked = client.post("/v1/what-ifs", json={**question, "deadline_s": 5}, headers=wait)
        assert asked.status_code in (200, 202)
        assert client.get(found.headers["location"] + "/trace").status_code == 200
        assert client.post("/v1/profiles", json=PROFILE_EXAMPLE).status_code == 201
        planted = {**PLAN, "model": "http://192.0.2.1/config.json"}
        assert client.post("/v1/simulations", json=planted).status_code == 422
    assert stop_service(service) == (0, "")
    said = [path.read_text() for path in notes.glob("*.txt")]
    assert sum("server.compute.child" in text for text in said) >= 3
    assert sum("jobs.worker" in text for text in said) >= 2
    assert [text for text in said if "BAD" in text] == []
