"""Named limits: every size of any flag is answered at once, and work has a bound below them."""

from __future__ import annotations

import time

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.api.cli.main import cli
from shardwright.api.cli.value_types import TokenCountParam, WholeNumberParam, flag_of
from shardwright.spec import limits
from shardwright.spec.errors import InputError
from shardwright.spec.report.work_items import LARGEST_LOGITS, loss_chunks

AT_ONCE_S = 0.5
COUNTS = [
    (verb, param)
    for verb in (cli, *cli.commands.values())
    for param in verb.params
    if isinstance(param.type, (WholeNumberParam, TokenCountParam))
]
NUMBERS = (
    st.integers().map(str)
    | st.integers(0, 5000).map(lambda digits: "9" * digits)
    | st.floats().map(str)
    | st.from_regex(r"[0-9]{1,3}e[0-9]{1,4}|[0-9]+[kKmMbBgGtT]", fullmatch=True)
    | st.text()
)


@pytest.mark.parametrize(
    ("verb", "param"), COUNTS, ids=[f"{verb.name} {flag_of(param)}" for verb, param in COUNTS]
)
@given(text=NUMBERS)
def test_any_number_for_any_size_is_taken_or_refused_at_once(
    verb: click.Command, param: click.Parameter, text: str
) -> None:
    begun_s = time.perf_counter()
    said = _answer(param, text)
    assert time.perf_counter() - begun_s < AT_ONCE_S
    if isinstance(said, int):
        assert 0 <= said <= limits.MAX_TRAINING_TOKENS
        return
    assert said.startswith(f"{flag_of(param)}: got ")
    assert "; allowed: " in said
    assert said.isprintable()


def _answer(param: click.Parameter, text: str) -> int | str:
    try:
        return int(param.type.convert(text, param, None))
    except InputError as error:
        return str(error)


def test_a_number_beyond_a_limit_names_the_limit_as_the_nearest() -> None:
    for verb, param in COUNTS:
        if isinstance(param.type, WholeNumberParam):
            for digits in (13, 30, 5000):
                with pytest.raises(InputError) as caught:
                    param.type.convert("9" * digits, param, None)
                assert str(caught.value.nearest) == str(param.type.most), (verb.name, param.name)


@given(st.integers(1, limits.MAX_SEQ_LEN * limits.MAX_DEGREE), st.integers(1, 2**24))
def test_a_loss_has_few_chunks_and_all_tokens(tokens: int, vocab: int) -> None:
    begun_s = time.perf_counter()
    chunks = loss_chunks(tokens, vocab)
    assert sum(chunks) == tokens
    assert len(chunks) <= limits.MAX_LOSS_CHUNKS
    assert time.perf_counter() - begun_s < AT_ONCE_S
    if tokens <= 2**20:  # what anyone trains on: the bytes of the logits decide
        assert chunks[0] * vocab <= max(LARGEST_LOGITS, 256 * vocab)


def test_published_runs_are_within_the_limits() -> None:
    assert limits.MAX_SEQ_LEN >= 2**23
    assert min(limits.MAX_NODES * 8, limits.MAX_PLAN_DEVICES, limits.MAX_DEGREE) >= 100_000
    assert len(loss_chunks(2**23, 128_256)) == 2**23 // 2048
