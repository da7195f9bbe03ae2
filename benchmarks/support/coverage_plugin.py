"""A pytest plugin that notes which tests run which lines, and how long each test takes.

Loaded with ``-p`` in a child process. ``MUTANTS_FOLDERS`` names the folders whose lines count, one
a word; the map goes to the JSON file ``MUTANTS_MAP``: for every file and line the numbers of tests,
and for every number the test and its seconds. Lines that only child processes run
are not in it, nor are tests that would begin ``MUTANTS_LIMIT_S`` seconds after the
first.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

ROOT = Path.cwd()
TRACED = coverage.Coverage(
    data_file=None, include=[f"{ROOT / name}/*" for name in os.environ["MUTANTS_FOLDERS"].split()]
)
LIMIT_S = float(os.environ["MUTANTS_LIMIT_S"])
START_S: list[float] = []
SECONDS: dict[str, float] = {}


def pytest_configure() -> None:
    """Begin before tests import what they test."""
    TRACED.start()


def pytest_collection_finish() -> None:
    """Count the limit from the first test: how long imports take depends on the machine."""
    START_S.append(time.monotonic())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Give what runs now to this test."""
    TRACED.switch_context(item.nodeid)
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add a phase's seconds; tests that were skipped or failed do not count."""
    SECONDS[report.nodeid] = SECONDS.get(report.nodeid, 0.0) + report.duration
    if report.outcome != "passed":
        SECONDS[report.nodeid] = float("inf")


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Let no test begin after the limit: the map is of those that ran."""
    if time.monotonic() - START_S[0] > LIMIT_S:
        item.session.shouldstop = "the time is up"


def pytest_unconfigure() -> None:
    """Write the map."""
    TRACED.stop()
    tests = [name for name, seconds in SECONDS.items() if seconds < float("inf")]
    numbers = {name: number for number, name in enumerate(tests)}
    data = TRACED.get_data()
    lines = {
        Path(file).relative_to(ROOT).as_posix(): {
            line: sorted(numbers[name] for name in names if name in numbers)
            for line, names in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
    }
    found = {"tests": [[name, SECONDS[name]] for name in tests], "lines": lines}
    Path(os.environ["MUTANTS_MAP"]).write_text(json.dumps(found), encoding="utf-8")
