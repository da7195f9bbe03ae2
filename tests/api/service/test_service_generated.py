"""U10: a client that a generator makes of docs/openapi.json works against the service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from service.services import Service

ROOT = Path(__file__).resolve().parents[3]
CONFIG = "post_hooks: []\npackage_name_override: service_client\n"
PROGRAM = ROOT / "tests" / "support" / "service" / "generated_client.py"


@pytest.mark.timeout(180)
def test_a_generated_client_finds_a_plan(service: Service, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    made = subprocess.run(
        [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none",
         "--path", str(ROOT / "docs" / "openapi.json"), "--config", "config.yaml",
         "--output-path", "service_client", "--fail-on-warning"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    described = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))
    operations = [op for item in described["paths"].values() for op in item.values()]
    modules = sorted((tmp_path / "service_client" / "api" / "default").glob("[!_]*.py"))
    assert len(modules) == len(operations)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), service.url],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.pop("answer").startswith("sha256:")
    assert found.pop("simulated") > 0
    assert found.pop("models") > 30
    assert found == {
        "health": "ok",
        "accepted": True,
        "same_job": True,
        "state": "done",
        "listed": True,
        "cancelled": 204,
        "problem": 422,
        "pointer": "/model",
    }
