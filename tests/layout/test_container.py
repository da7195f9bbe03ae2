"""The container's files say what the package says: flags, port, Python; and ask for few rights.

No container engine is at hand, so these hold only what can be read of them; both files say so.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardwright.api.cli.verbs import VERBS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "container"
RECIPE = (FOLDER / "Containerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORDS = {
    "FROM", "WORKDIR", "COPY", "RUN", "USER", "VOLUME", "ENV", "EXPOSE", "STOPSIGNAL",
    "HEALTHCHECK", "ENTRYPOINT", "CMD",
}  # fmt: skip


def instructions() -> list[tuple[str, str]]:
    """Every instruction of the recipe and what follows it."""
    lines = [line for line in RECIPE.splitlines() if line and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    found = [line.partition(" ") for line in joined.splitlines()]
    return [(word, rest.strip()) for word, _, rest in found]


def _one(word: str) -> str:
    return [rest for name, rest in instructions() if name == word][-1]


def test_both_say_that_they_were_not_run() -> None:
    assert "NOT YET RUN" in RECIPE
    assert "NOT YET RUN" in (FOLDER / "compose.yaml").read_text(encoding="utf-8")


def test_the_recipe_is_one() -> None:
    assert {word for word, _ in instructions()} == WORDS
    least = PROJECT["requires-python"].removeprefix(">=")
    images = [rest.partition(" ")[0] for word, rest in instructions() if word == "FROM"]
    assert set(images) == {f"python:{least}-slim-bookworm"}
    assert _one("USER") == "10001:10001"
    place = _one("CMD").partition("sqlite:///")[2].rpartition("/")[0]
    assert _one("VOLUME") == place  # made for that user before it is the one
    assert f"-o 10001 -g 10001 {place}" in _one("RUN")
    locks = re.findall(r"--require-hashes\s+--requirement (\S+)", RECIPE.replace("\\\n", " "))
    assert locks == ["locks/install.txt", "locks/base.txt"]


def test_the_command_is_the_package_s() -> None:
    head, tail = (json.loads(_one(word)) for word in ("ENTRYPOINT", "CMD"))
    assert head[:2] == ["plan", "serve"]
    assert head[0] in PROJECT["scripts"]
    for flags in (tail, COMPOSE["services"]["service"]["command"]):
        asked = [word for word in (*head[2:], *flags) if word != "/run/secrets/tokens"]
        asked.remove("--token-file")
        given = VERBS["serve"].make_context("serve", asked).params
        assert given["port"] == int(_one("EXPOSE"))
        assert given["log"] == "info"
        assert "--token-file" in flags
    assert f":{_one('EXPOSE')}/readyz" in _one("HEALTHCHECK")


def test_the_context_is_the_package() -> None:
    kept = (FOLDER / "Containerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    named = {line.removeprefix("!") for line in kept if line.startswith("!")}
    assert all((ROOT / name).exists() for name in named)
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    packages = {name.split(".")[1] for name in tools["setuptools"]["packages"] if "." in name}
    assert packages <= named
    assert {PROJECT["readme"], *PROJECT["license-files"], "locks"} <= named


def test_the_services_have_no_more_rights_than_they_need() -> None:
    service, database = COMPOSE["services"]["service"], COMPOSE["services"]["database"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["user"] == _one("USER")
    for each in (service, database):
        assert each["security_opt"] == ["no-new-privileges:true"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert service["secrets"] == list(COMPOSE["secrets"]) == ["tokens"]
    assert service["depends_on"]["database"]["condition"] == "service_healthy"
    assert database["healthcheck"]["test"][1] == "pg_isready"
    assert re.fullmatch(r"postgres:\d+-bookworm", database["image"])
    assert "ports" not in database
    assert set(COMPOSE["volumes"]) == {place.partition(":")[0] for place in database["volumes"]}


@pytest.mark.parametrize("name", ["tokens", ".env"])
def test_no_secret_is_kept(name: str) -> None:
    assert not (FOLDER / name).exists()


def test_ci_asks_for_the_system_s_packages_first() -> None:
    said = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    commands = [line for line in said if line.startswith(("make", "exec make"))]
    assert [line.split()[-1] if "||" not in line else line.split()[1] for line in commands] == [
        "system-deps", "test",
    ]  # fmt: skip
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    target = makefile.partition("\nsystem-deps:")[2].partition("\n\n")[0]
    for word in ("postgresql", "chromium", "iproute2", "apt-get install", "sudo"):
        assert word in target
