"""Other frameworks' checkpoints, and conversions, by URL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
import torch
from ranks.foreign_samples import DONE, FOLDER, SAMPLES, expected, sample_model, sample_plan

from shardwright.executor.checkpoint.foreign.command import answer
from shardwright.executor.checkpoint.foreign.convert import Conversion
from shardwright.executor.checkpoint.foreign.inspect import checkpoint_document
from shardwright.executor.checkpoint.foreign.look import is_foreign
from shardwright.executor.checkpoint.foreign.weights import ForeignWeights
from shardwright.executor.checkpoint.storage.far_path import FarPath
from shardwright.executor.stage.initial_weights import parameter_name
from shardwright.executor.stage.weight_source import full_ranges
from shardwright.executor.train.run_endpoints import RunEndpoints, default_tokenizer
from shardwright.spec.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
SEQ_LEN = 16


@pytest.fixture
def url() -> Iterator[str]:
    system = fsspec.filesystem("memory")
    yield "memory://sources/one"
    if system.exists("/sources"):
        system.rm("/sources", recursive=True)


def uploaded(folder: Path, url: str) -> FarPath:
    """A folder's files by URL."""
    for path in folder.iterdir():
        (FarPath(url) / path.name).write_bytes(path.read_bytes())
    return FarPath(url)


def has_the_values(weights: ForeignWeights, name: str, moments: bool = True) -> bool:
    values, same = expected(name), []
    for index, spec in weights.parameters():
        ours, whole = parameter_name(index, spec), full_ranges(spec)
        same.append(torch.equal(weights.read_range(index, spec, whole), values[f"model.{ours}"]))
        for key in ("exp_avg", "exp_avg_sq") if moments else ():
            found = weights.read_state(key, index, spec, whole)
            same.append(torch.equal(found, values[f"optimizer.{key}.{ours}"]))
    return all(same) and len(same) > 0


@pytest.mark.parametrize("name", SAMPLES)
def test_a_source_by_url_is_the_one_here(name: str, url: str) -> None:
    far = uploaded(FOLDER / name, url)
    assert is_foreign(far)
    weights = ForeignWeights(far, sample_model(), SEQ_LEN)
    assert has_the_values(weights, name)
    assert weights.digest() == ForeignWeights(FOLDER / name, sample_model(), SEQ_LEN).digest()
    here, there = checkpoint_document(FOLDER / name), checkpoint_document(far)
    assert there.pop("folder") == url
    assert here.pop("folder") == str(FOLDER / name)
    assert there == here


def test_a_conversion_by_url_is_bit_equal(url: str, tmp_path: Path) -> None:
    model, far = sample_model(), uploaded(FOLDER / SAMPLES[0], url)
    ours = FarPath("memory://sources/ours")
    assert Conversion(far, model, SEQ_LEN, ours).to("shardwright")["step"] == DONE
    assert has_the_values(ForeignWeights(ours, model, SEQ_LEN), SAMPLES[0])
    assert checkpoint_document(ours)["damages"] == 0
    Conversion(ours, model, SEQ_LEN, tmp_path / "hf").to("hf")
    weights = ForeignWeights(uploaded(tmp_path / "hf", f"{url}-hf"), model, SEQ_LEN)
    assert has_the_values(weights, SAMPLES[0], moments=False)
    with pytest.raises(InputError, match=r"^--out: got memory://.*; allowed: a folder that is emp"):
        Conversion(far, model, SEQ_LEN, ours).to("shardwright")
    with pytest.raises(InputError, match=r"^--out: got memory://.*; allowed: a folder of this mac"):
        Conversion(far, model, SEQ_LEN, ours).to("hf")


def test_a_configuration_by_url_is_compared(url: str, tmp_path: Path) -> None:
    model = sample_model()
    Conversion(FOLDER / SAMPLES[0], model, SEQ_LEN, tmp_path / "hf").to("hf")
    path = tmp_path / "hf" / "config.json"
    document = json.loads(path.read_text()) | {"rms_norm_eps": 0.25}
    path.write_text(json.dumps(document))
    with pytest.raises(InputError) as refused:
        ForeignWeights(uploaded(tmp_path / "hf", url), model, SEQ_LEN)
    assert url in str(refused.value)
    assert "0.25" in str(refused.value)


def test_a_run_starts_from_a_url(url: str) -> None:
    uploaded(FOLDER / SAMPLES[0], url)
    ends = RunEndpoints(sample_plan(ranks=1), 0, url, None, None)
    assert isinstance(ends.weight_source, ForeignWeights)
    assert has_the_values(ends.weight_source, SAMPLES[0])
    assert default_tokenizer(None, None, url) is None
    (FarPath(url) / "tokenizer.json").write_bytes(b"{}")
    with pytest.raises(InputError, match=r"^--tokenizer: got nothing; allowed: a copy of memory"):
        default_tokenizer(None, None, url)


def test_a_torn_source_by_url_is_damage(url: str) -> None:
    far = uploaded(FOLDER / SAMPLES[0], url)
    torn = sorted(far.glob("*.distcp"), key=str)[0]
    torn.write_bytes(torn.read_bytes()[:-700])
    assert checkpoint_document(far)["damages"] == 1


@pytest.mark.parametrize("path", ["s3://bucket/run", "nothing://run", "memory://nowhere/at/all"])
def test_what_is_not_there_is_one_line(path: str) -> None:
    with pytest.raises(InputError) as refused:
        answer({"path": path})
    assert "\n" not in str(refused.value)
    assert path.partition("/")[0] in str(refused.value)
