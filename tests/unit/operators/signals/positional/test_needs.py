"""What objects need around a block: windows as a whole, without a halo where blocks end with them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.operators.signals.positional.kernels.plan import PositionNeed

STEPS = st.integers(1, 12)
NEEDS = st.builds(PositionNeed, st.integers(-9, 30), st.integers(-9, 30), STEPS, STEPS)


def span(need: PositionNeed, start: int, stop: int) -> tuple[int, int]:
    """The positions that are needed for some that are asked for."""
    first = start // need.before * need.before - need.past
    return first, -(-stop // need.after) * need.after + need.future


@given(NEEDS, STEPS, st.integers(100, 200), st.integers(0, 50))
def test_windows_are_needed_as_a_whole(need: PositionNeed, step: int, start: int, count: int) -> None:
    first, stop = span(need, start, start + count)
    wider = span(need.within(step), start, start + count)
    assert wider[0] <= first // step * step
    assert wider[1] >= -(-stop // step) * step


@given(NEEDS, NEEDS, st.integers(100, 200), st.integers(0, 50))
def test_either_need_is_met_by_both_together(
    a: PositionNeed, b: PositionNeed, start: int, count: int
) -> None:
    both = span(a | b, start, start + count)
    for need in (a, b):
        first, stop = span(need, start, start + count)
        assert both[0] <= first and both[1] >= stop


@given(NEEDS, st.integers(100, 200), st.integers(0, 50))
def test_the_flat_need_holds_wherever_windows_begin(need: PositionNeed, start: int, count: int) -> None:
    first, stop = span(need, start, start + count)
    assert start - need.flat.past <= first and start + count + need.flat.future >= stop


@given(STEPS, st.integers(0, 20), st.integers(1, 20))
def test_blocks_that_end_with_windows_have_no_halo(step: int, first: int, many: int) -> None:
    bounds = first * step, (first + many) * step
    assert span(PositionNeed().within(step).within(step), *bounds) == bounds
