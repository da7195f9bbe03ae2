"""Degrees that nest between real ranks, and what each link level carries."""

from __future__ import annotations

from pathlib import Path

import pytest
from checks.nested_runs import COMBINATIONS, Nested, faults, run_nested
from ranks.checkpoint_matrix import SAME_BOUND, apart, resumed, run_on, save
from ranks.rank_pools import RankPool


def test_every_combination_is_counted() -> None:
    assert len(COMBINATIONS) == 24
    assert {"2/4/8", "4/8/8+hpz:2", "hpz:4", "1/2/4"} <= set(COMBINATIONS)


@pytest.mark.parametrize(
    "nested",
    [
        Nested("2/4/8"),
        Nested("4/4/8+hpz:2"),
        Nested("hpz:4", "zero++@4"),
        Nested("hpz:4", "zero++/hpz8@4"),
        Nested("4/4/8+hpz:2", "zero++/hpz8@4"),
        Nested("1/2/8", "sdp4bit@4"),
    ],
    ids=lambda nested: " ".join((nested.text, nested.word)),
)
def test_eight_ranks_as_two_nodes_of_pairs(eight_ranks: RankPool, nested: Nested) -> None:
    found = run_nested(eight_ranks, nested, 3)
    assert faults(found) == []
    assert set(found["sent"]) == {"intra_pair", "intra_node", "intra_rack"}


def test_two_hops_between_nodes_of_two(four_ranks: RankPool) -> None:
    """sdp4bit on four ranks as two nodes: both hops are real, and bytes are the priced ones."""
    plain, found = (
        run_nested(four_ranks, Nested("zero2", word, ranks=4), 3) for word in ("none", "sdp4bit@2")
    )
    assert faults(found) == []
    assert found["losses"] == pytest.approx(plain["losses"], rel=2e-3)
    assert found["losses"] != plain["losses"]
    for level in ("intra_node", "intra_rack"):
        assert max(found["sent"][level]["measured"]) < max(plain["sent"][level]["measured"])


@pytest.mark.parametrize(
    ("text", "word"),
    [("hpz:2", "hpz8"), ("2/2/4", "int8x2048/8x512+4x128h@2")],
)
def test_lossy_words_stay_close_and_send_less(four_ranks: RankPool, text: str, word: str) -> None:
    """A second copy in 8 bits inside the node; once a step, 4 and 8 bits between nodes."""
    plain, found = (
        run_nested(four_ranks, Nested(text, sent, ranks=4), 3) for sent in ("none", word)
    )
    assert faults(found) == []
    assert found["losses"] == pytest.approx(plain["losses"], rel=2e-3)
    assert found["losses"] != plain["losses"]
    level = "intra_node" if word == "hpz8" else "intra_rack"
    assert max(found["sent"][level]["measured"]) < max(plain["sent"][level]["measured"])


def test_a_run_goes_on_under_other_combinations(four_ranks: RankPool, tmp_path: Path) -> None:
    run = run_on({4: four_ranks})
    saved = save(run, Nested("1/2/4", ranks=4), tmp_path)
    for text in ("1/2/4", "2/2/4", "2/4/4"):
        losses = resumed(run, Nested(text, ranks=4), saved)
        assert apart(losses, saved.losses) <= SAME_BOUND, text
