"""Every stage keeps to the contract; a toy one does without an edit elsewhere."""

from __future__ import annotations

from importlib.util import find_spec
from typing import ClassVar

import pytest
from checks.data_stage_suite import DataStageSuite, Record

from shardwright.datasets.pipelines.shipped import STAGES


def lacking(module: str) -> pytest.MarkDecorator:
    """Skips where a library of the extra data lacks, and says so in one line."""
    why = f"no {module} here: the extra data brings it"
    return pytest.mark.skipif(find_spec(module) is None, reason=why)


class TestExactDuplicates(DataStageSuite):
    stage = "exact_duplicates"


class TestNearDuplicates(DataStageSuite):
    stage = "near_duplicates"
    settings: ClassVar[Record] = {"jaccard": 0.5, "words": 3}

    pytestmark = lacking("datasketch")


class TestRepeatedSentences(DataStageSuite):
    stage = "repeated_sentences"
    settings: ClassVar[Record] = {"documents": 5}


class TestRules(DataStageSuite):
    stage = "rules"
    settings: ClassVar[Record] = {"most_repeated_lines": 0.1}


class TestLanguage(DataStageSuite):
    stage = "language"
    settings: ClassVar[Record] = {"languages": ["en", "la"], "probability": 0.3}

    pytestmark = lacking("py3langid")


class TestPersonalData(DataStageSuite):
    stage = "personal_data"


class TestContamination(DataStageSuite):
    stage = "contamination"
    settings: ClassVar[Record] = {"benchmarks": ["seeds.jsonl"], "ngram": 40}


class TestQuality(DataStageSuite):
    stage = "quality"
    settings: ClassVar[Record] = {"good": ["seeds.jsonl"], "but": ["domain1"]}

    pytestmark = lacking("scipy")


class TestRepositoryOrder(DataStageSuite):
    stage = "repository_order"
    settings: ClassVar[Record] = {"domains": ["domain0"]}


class TestMixture(DataStageSuite):
    stage = "mixture"
    settings: ClassVar[Record] = {"weights": {"domain0": 0.8, "domain1": 0.2}, "epochs": 1.5}


class TestWindows(DataStageSuite):
    stage = "windows"
    settings: ClassVar[Record] = {"tokens": 512}

    pytestmark = lacking("sklearn")


class TestTokens(DataStageSuite):
    stage = "windows"
    settings: ClassVar[Record] = {"tokens": 700, "order": "concat"}


class TestToy(DataStageSuite):
    stage = "above_median"


def test_every_stage_has_a_class() -> None:
    named = {suite.stage for suite in DataStageSuite.__subclasses__()}
    assert named >= {stage.name for stage in STAGES if stage.name != "tokens"}
