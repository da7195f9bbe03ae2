"""Every code block of the README and the docs is run, or listed here with why not (U7).

``make test`` runs those that take seconds; those of minutes run in ``make evidence``. What a block
shows is compared with what its commands printed, but for what a machine measured.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import pytest
from runner.doc_blocks import ROOT, Block, Reader, blocks, commands, difference, every_block
from service.services import start_service, stop_service

from shardwright.api.catalogue.models import models_document
from shardwright.api.problem.price_file import prices_of
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.datasets.models.typed_model import KNOWN, REQUIRED
from shardwright.datasets.models.typed_reader import FAMILY_DEFAULTS
from shardwright.datasets.published.runs import TABLE

QUICK: list[tuple[str, tuple[int, ...]]] = [
    ("docs/one-plan.md", (0, 1)),
    ("docs/doctor.md", (0, 1)),
    ("docs/python.md", (3, 4)),
    ("docs/multi_node.md", (0,)),
    ("docs/clusters.md", (0, 1)),
    ("docs/sizing.md", (0, 1)),
]
LONG: list[tuple[str, tuple[int, ...]]] = [
    ("README.md", (3, 4)),
    ("docs/explaining.md", (0, 1, 2)),
    ("docs/accuracy.md", (0, 1)),
    ("docs/calibrating.md", (0, 1)),
    ("docs/reading-a-report.md", (0, 1, 2, 3, 4)),
    ("docs/recommendations.md", (0, 1)),
    ("docs/jobs.md", (0, 1)),
    ("docs/jobs.md", (2, 3)),
    ("docs/jobs.md", (4, 5)),
    ("docs/jobs.md", (6, 7)),
    ("docs/what_if.md", (0, 1)),
    ("docs/what_if.md", (3,)),
    ("docs/sizing.md", (2, 3)),
]
"""Searches of large models, and prices of hundreds of runs."""
IN_TESTS_OF_THEIR_OWN = {
    "README.md 5",  # the same curl as the service's page
    *(f"service.md {n}" for n in (0, 1, 2)),  # the service and its curl
    *(f"python.md {n}" for n in (0, 1, 2)),  # and its client
    "architecture.md 0",  # the tree: tests/layout/test_readme.py
    "plan-document.md 0", "plan-document.md 1",
    "objectives.md 0",
    *(f"data-recipes.md {n}" for n in range(3)),  # tests/datasets/recipes/test_page.py
    *(f"clusters.md {n}" for n in (2, 3, 4)),
    *(f"typed-models.md {n}" for n in range(8)),
    "running.md 2", "running.md 3",  # under torchrun: tests/distributed/test_user_modules.py
    "what_if.md 2",  # keys of the document: tests/api/cli/test_what_if.py
}  # fmt: skip
NOT_RUN = {
    "agents.md 0": "pip install: make wheel-test",
    "agents.md 1": "a client's configuration; tests/api/agents/test_mcp_server.py starts it",
    "agents.md 2": "arguments of a call: tests/api/agents/test_tools.py passes a content too",
    "diagnosing.md 0": "a log of the reader's own; tests/api/diagnose reads one of each framework",
    "diagnosing.md 1": "what that prints; the same",
    **{
        f"frameworks.md {n}": "reads files of the reader's own: tests/api/frameworks has each verb"
        for n in range(6)
    },
    "README.md 1": "make demo and make test: they run these tests",
    "README.md 2": "what make demo measured on one machine; tests/api/cli/test_process.py runs it",
    "calibrating.md 2": "a table of the reader's own peaks; tests/api/cli/test_calibrate_memory.py "
    "has one",
    "running.md 0": "runs of ranks with a corpus; tests/distributed/test_training.py has each flag",
    "running.md 1": "runs of hundreds of steps; tests/distributed/checkpoints/test_checkpoints.py, "
    "test_hf_weights.py",
    "README.md 0": "pip install: make wheel-test",
    "running.md 4": "needs PyTorch's package index",
    "CONTRIBUTING.md 0": "make demo, make test, make lint",
    "checkpoints.md 0": "runs of thousands of steps; tests/executor/checkpoint/test_new_stage.py "
    "has each flag",
    "checkpoints.md 2": "needs a bucket; tests/executor/checkpoint/test_far_storage.py has URLs",
    "checkpoints.md 1": "needs a Megatron checkpoint; tests/executor/checkpoint/"
    "test_foreign_checkpoints.py has each",
    "multi_node.md 1": "needs 2 nodes of 8 GPUs",
    "multi_node.md 2": "needs 2 nodes of 8 GPUs",
    "multi_node.md 3": "tests/distributed/launch/test_several_nodes.py starts the same two "
    "torchruns",
    "operations.md 0": "serves until it is stopped; service.md 0 is the same",
    "operations.md 1": "makes a token file; tests/api/service/test_service_tokens.py serves "
    "with one",
    "operations.md 2": "needs a PostgreSQL of the reader's; tests/api/jobs/test_service_jobs.py "
    "has one",
    "operations.md 3": "lines of a log; tests/api/service/test_service_logs.py holds their form",
    "operations.md 4": "needs sqlite3's own program and a database in use",
    "operations.md 5": "needs sqlite3's own program and a broken database",
    "operations.md 6": "container files are not yet run",
    "activation-swap.md 0": "prints nothing; the evidence item activation_swap asks the same",
    "quantized-communication.md 0": "prints nothing; tests/techniques holds its words",
    "tiered-sharding.md 0": "prints nothing; tests/planner/pins/test_pinned_shards.py pins such",
    "objectives.md 1": "its command is not shown; tests/api/service/test_operations.py has such "
    "changes",
}
COUNTED = {"run": 68, "not run": 36}


def _chosen(page: str, numbers: tuple[int, ...]) -> list[Block]:
    found = blocks(ROOT / page)
    return [found[number] for number in numbers]


def _case(value: str | tuple[int, ...]) -> str:
    return value if isinstance(value, str) else "-".join(map(str, value))


def test_every_block_is_run_or_says_why_not() -> None:
    run = {block.name for case in (*QUICK, *LONG) for block in _chosen(*case)}
    names = [block.name for block in every_block()]
    assert sorted({*run, *IN_TESTS_OF_THEIR_OWN, *NOT_RUN}) == sorted(names)
    assert not NOT_RUN.keys() & {*run, *IN_TESTS_OF_THEIR_OWN}
    counted = {"run": len({*run, *IN_TESTS_OF_THEIR_OWN}), "not run": len(NOT_RUN)}
    assert counted == COUNTED


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("page", "numbers"), QUICK, ids=_case)
def test_blocks_print_what_they_show(page: str, numbers: tuple[int, ...], tmp_path: Path) -> None:
    _run(page, numbers, tmp_path)


@pytest.mark.evidence
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("page", "numbers"), LONG, ids=_case)
def test_long_blocks_print_what_they_show(
    page: str, numbers: tuple[int, ...], tmp_path: Path
) -> None:
    _run(page, numbers, tmp_path)


def _run(page: str, numbers: tuple[int, ...], folder: Path) -> None:
    _write_rows(folder / "my-runs.csv")
    reader, printed = Reader(folder), ""
    for block in _chosen(page, numbers):
        if block.language in ("sh", "python"):
            printed = reader.printed(block)
        else:
            assert block.language == "text"
            assert printed
            assert difference(block.text, printed) == "", block.name


def _write_rows(target: Path) -> None:
    """The rows that the README says its calibration was fitted to."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(row for row in rows if row["id"].startswith("vtrain_multi-"))


SERVED = [("docs/service.md", (0, 1, 2)), ("docs/python.md", (0, 1, 2))]
"""``plan serve``, what asks it, and what that printed."""


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("page", "numbers"), SERVED, ids=_case)
def test_what_asks_a_service_works_word_for_word(
    page: str, numbers: tuple[int, ...], tmp_path: Path
) -> None:
    assert shutil.which("curl"), "the quickstart is curl's: install it"
    serve, asks, answer = _chosen(page, numbers)
    assert list(commands(serve)) == [["plan", "serve"]]
    running = start_service(tmp_path)
    try:
        printed = Reader(tmp_path, running.address[1]).printed(asks)
    finally:
        assert stop_service(running) == (0, "")
    assert difference(answer.text, printed) == ""


@pytest.mark.timeout(180)
def test_the_plan_document_is_what_its_command_writes(tmp_path: Path) -> None:
    command, document = _chosen("docs/plan-document.md", (0, 1))
    Reader(tmp_path).printed(command)
    assert json.loads((tmp_path / "plan.json").read_text()) == json.loads(document.text)


def test_the_price_file_can_be_used(tmp_path: Path) -> None:
    (prices,) = _chosen("docs/objectives.md", (0,))
    (tmp_path / "prices.yaml").write_text(prices.text)
    cluster = parse_cluster("1x8xH100-80GB+1x8xA100-80GB").cluster
    found = prices_of(tmp_path / "prices.yaml", cluster)
    assert found is not None
    assert found.currency == "USD"
    assert found.device_hour["H100-SXM-80GB"] == 2.49


def test_the_cluster_file_is_what_is_shown_of_it(tmp_path: Path) -> None:
    keys, command, shown = _chosen("docs/clusters.md", (2, 3, 4))
    (tmp_path / "cluster.yaml").write_text(keys.text)
    assert difference(shown.text, Reader(tmp_path).printed(command)) == ""


def test_the_typed_model_is_what_is_shown_of_it(tmp_path: Path) -> None:
    keys, command, shown = _chosen("docs/typed-models.md", (0, 1, 2))
    (tmp_path / "mine.yaml").write_text(keys.text)
    assert difference(shown.text, Reader(tmp_path).printed(command)) == ""


@pytest.mark.parametrize(
    ("number", "kind", "parameters"),
    [
        (3, "dense", 124_439_808),
        (4, "experts", 15_960_108_544),
        (5, "experts", 46_702_792_704),
        (6, "hybrid", 106_314_784),
        (7, "encoder", 86_567_656),
    ],
)
def test_each_kind_of_typed_model_has_an_example(
    number: int, kind: str, parameters: int, tmp_path: Path
) -> None:
    (keys,) = _chosen("docs/typed-models.md", (number,))
    path = tmp_path / "model.yaml"
    path.write_text(keys.text)
    document = models_document(str(path))
    assert (document["kind"], document["parameters"]) == (kind, parameters)


def test_the_page_of_typed_models_has_every_key_with_its_default() -> None:
    text = (ROOT / "docs" / "typed-models.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \| .* \| (.*?) \|$", text, re.MULTILINE)
    defaults = {key: left_out for names, left_out in rows for key in re.findall(r"`(\w+)`", names)}
    assert sorted(defaults) == sorted(KNOWN)
    for key, value in FAMILY_DEFAULTS["llama"].items():
        text = f"{value:g}" if isinstance(value, float) else str(value).lower()
        assert defaults[key].partition(";")[0].strip("`") == text.replace("e-0", "e-")
    for key, value in FAMILY_DEFAULTS["gpt2"].items():
        if value != FAMILY_DEFAULTS["llama"][key]:
            assert str(value).lower() in defaults[key].partition(";")[2]
    assert [key for key in REQUIRED if not defaults[key].startswith("required")] == []


SHOWN = "a 1\n…\nc 3 in all … of it\nd"
PRINTED = "a 1\nb 2\nc 3 in all 4 parts of\nit\nd\ne\n"


def test_the_comparison_of_these_tests_sees_what_differs() -> None:
    assert difference(SHOWN, PRINTED) == ""
    assert (
        difference("search: 3 plans simulated in 4.6 s", "search: 3 plans simulated in 9 ms") == ""
    )
    assert "2" in difference("a 2", PRINTED)
    assert difference("a 1\nc 3", PRINTED)
    assert difference("c 3\n…\na 1", PRINTED)
    assert difference('{"a": 1,\n"b": …}', '{"a": 1, "b": [2]}') == ""
    assert difference('{"a": 2, …}', '{"a": 1, "b": [2]}')
