"""Numbers that are not finite are refused by whatever reads a document, wherever they stand."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.api.problem.model_and_cluster import model_of
from shardwright.datasets.catalogue.documents import parse_yaml
from shardwright.spec.codec import parse_json
from shardwright.spec.errors import InputError

NUMBERS = ("1e999", "-1e400", "NaN", "Infinity", "-Infinity", "1" + "0" * 309, "9" * 5000)
LLAMA = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 256,
         "num_attention_heads": 4, "intermediate_size": 128}  # fmt: skip


@pytest.mark.parametrize("number", NUMBERS)
def test_a_document_with_one_is_refused_by_its_place(number: str) -> None:
    for text, place in (
        (f'{{"a": [1, {{"b": {number}}}]}}', "plan: a.1.b"),
        (f"[0.5, true, {number}, 1e999]", "plan: 2"),
        (number, "plan"),
    ):
        with pytest.raises(InputError) as caught:
            parse_json(text, "plan")
        assert (caught.value.field, caught.value.given) == (place, number)
        assert str(caught.value).isprintable()


def test_one_before_what_is_no_json_is_refused_too() -> None:
    with pytest.raises(InputError, match="1e999"):
        parse_json("[1e999, nonsense", "plan")


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**308), 10**308))
def test_finite_ones_are_read_as_written(number: float) -> None:
    assert parse_json(json.dumps([number]), "plan") == [number]


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()


@given(st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_what_is_read_has_none(document: Any) -> None:
    try:
        pending = [parse_json(json.dumps(document), "body")]
    except InputError:
        return
    while pending:
        value = pending.pop()
        assert not isinstance(value, float) or math.isfinite(value)
        if isinstance(value, (dict, list)):
            pending += value.values() if isinstance(value, dict) else value


@pytest.mark.parametrize("number", ["1.0e999", "-2.5e400", "1" + "0" * 309])
def test_yaml_has_none_either(number: str) -> None:
    with pytest.raises(InputError, match="a finite number"):
        parse_yaml(f"layers: 2\nother: [{number}]\n", "model")


def test_a_configuration_has_none_under_a_key_that_nobody_reads() -> None:
    model_of(LLAMA)
    with pytest.raises(InputError, match="transformers_version"):
        model_of({**LLAMA, "transformers_version": math.inf})
    with pytest.raises(InputError, match=r"deeply.0.nested"):
        model_of({**LLAMA, "deeply": [{"nested": math.nan}]})
