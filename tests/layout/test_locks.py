"""Everything that is installed is pinned by version and hash."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCKS = ("audit", "base", "cuda", "dev", "fit", "install", "torch")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
INSTALLING = re.compile(r"\bpip(\s+--?\S+(\s+/\S+)?)*\s+(install|download|wheel)\b")
TOLD = re.compile(r"pip install \.$|pip install '(\.|shardwright)\[[a-z,]+\]'")
"""What a person is told to type, who picks their own versions."""


def requirements(text: str) -> list[tuple[Requirement, list[str]]]:
    """Each requirement of a lock with its hashes."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        words = line.partition(" --hash")[0]
        found.append((Requirement(words.strip()), HASH.findall(line)))
    return found


def loose_installs(text: str) -> list[str]:
    """Lines that let pip install, or fetch, what no lock holds."""
    commands = re.split(r"\n|&&|\|\||;", text.replace("\\\n", " "))
    return [
        line.strip()
        for line in commands
        if INSTALLING.search(line)
        and not re.match(r"\s*#", line)
        and "--require-hashes" not in line
        and not ("--no-deps" in line and ("--no-build-isolation" in line or "download" in line))
    ]


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_holds_versions_and_hashes(name: str, root: Path) -> None:
    text = (root / "locks" / f"{name}.txt").read_text(encoding="utf-8")
    assert "://" not in text
    assert "-url" not in text
    for requirement, hashes in requirements(text):
        assert re.fullmatch(r"==[^*,]+", str(requirement.specifier)), requirement
        assert len(set(hashes)) == len(hashes) > 0, requirement


def test_no_other_lock_is_there(root: Path) -> None:
    assert sorted(path.name for path in (root / "locks").iterdir()) == [f"{n}.txt" for n in LOCKS]


@pytest.mark.parametrize("name", [name for name in LOCKS if name != "cuda"])
def test_a_lock_s_versions_are_the_constraints(name: str, root: Path) -> None:
    pinned = dict(
        line.split("==")
        for line in (root / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line and not line.startswith("#")
    )
    by_name = {canonicalize_name(name): version for name, version in pinned.items()}
    for requirement, _ in requirements((root / "locks" / f"{name}.txt").read_text("utf-8")):
        version = by_name.get(canonicalize_name(requirement.name))
        assert version is None or str(requirement.specifier) == f"=={version}"


def test_every_requirement_of_the_project_is_locked(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    groups = project["dependency-groups"]
    asked = {
        "base": project["project"]["dependencies"],
        "dev": [*extras["run"], *extras["dev"]],
        "fit": extras["fit"],
        "install": [*groups["install"], *project["build-system"]["requires"]],
        "audit": groups["audit"],
    }
    for name, wanted in asked.items():
        texts = [(root / "locks" / f"{each}.txt").read_text("utf-8") for each in (name, "torch")]
        locked = {canonicalize_name(r.name): r for text in texts for r, _ in requirements(text)}
        for word in wanted:
            requirement = Requirement(word)
            (pin,) = locked[canonicalize_name(requirement.name)].specifier
            assert requirement.specifier.contains(pin.version), word


def test_the_gate_catches_a_loose_line() -> None:
    assert loose_installs("python -m pip install --constraint c.txt x\n") != []
    assert loose_installs("pip install --require-hashes -r a.txt && pip install x") != []
    assert loose_installs("pip install x \\\n  --require-hashes -r a.txt\n") == []
    assert loose_installs("pip install --no-deps --no-build-isolation --editable .") == []
    assert loose_installs("# pip install x") == []


def test_nothing_installs_what_is_not_locked(
    root: Path, repository_files: tuple[Path, ...]
) -> None:
    for path in repository_files:
        name = path.relative_to(root)
        if name.name == "Makefile" or name.parts[0] in (".ci", "container"):
            assert loose_installs(path.read_text(encoding="utf-8")) == [], name
        elif path.suffix == ".md" and name.parts[0] != "benchmarks":
            loose = loose_installs(path.read_text(encoding="utf-8"))
            typed = [line for line in loose if line.startswith("pip ")]
            assert [line for line in typed if not TOLD.match(line)] == [], name
