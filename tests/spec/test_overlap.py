"""Traffic cut where other work begins or ceases to hide it, against a count of moments."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.spec.report.overlap import cut, exposed_term, overlapped_term, union

INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 8)), max_size=8)


@given(INTERVALS, st.integers(0, 40), st.integers(1, 12))
def test_parts_are_those_of_a_count_of_moments(
    drawn: list[tuple[int, int]], start: int, length: int
) -> None:
    busy = union((float(a), float(a + b)) for a, b in drawn)
    assert all(one[1] < other[0] for one, other in pairwise(busy))
    parts = cut((float(start), float(start + length)), busy)
    assert (parts[0][0], parts[-1][1]) == (start, start + length)
    assert all(a[1] == b[0] and a[2] != b[2] for a, b in pairwise(parts))
    for moment in range(start, start + length):
        (found,) = {hides for a, b, hides in parts if a <= moment + 0.5 < b}
        assert found == any(a <= moment < a + b for a, b in drawn)


def test_rounding_makes_no_parts() -> None:
    tiny = 1e-13
    assert cut((0.0, 1.0), [(-1.0, tiny), (0.5, 0.75), (0.75 + tiny, 1.0 - tiny)]) == [
        (0.0, 0.5, False),
        (0.5, 1.0, True),
    ]
    assert cut((2.0, 2.0), [(0.0, 3.0)]) == [(2.0, 2.0, False)]
    assert cut((0.0, 1.0), []) == [(0.0, 1.0, False)]


@pytest.mark.parametrize("term", ["exposed_dp", "exposed_tp"])
def test_names_of_terms(term: str) -> None:
    assert overlapped_term(term).startswith("overlapped_")
    assert exposed_term(overlapped_term(term)) == exposed_term(term) == term
    assert exposed_term("matmul") == "matmul"
    assert exposed_term(overlapped_term("cpu_offload")) == "cpu_offload"
