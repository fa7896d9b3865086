"""Calls a second."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runner.core.pace import next_place

NOW = 1_800_000_000.0


def test_the_first_call_goes_out_at_once() -> None:
    assert next_place(None, NOW, 4.0) == (NOW, NOW + 0.25)


def test_places_that_nobody_took_are_not_saved_up() -> None:
    assert next_place(NOW - 3600, NOW, 4.0) == (NOW, NOW + 0.25)


@given(st.lists(st.floats(min_value=0, max_value=2), min_size=1, max_size=60), st.floats(min_value=0.1, max_value=200))
def test_however_calls_come_no_two_are_closer_than_the_pace_allows(gaps: list[float], per_second: float) -> None:
    now, given_until, before = NOW, None, None
    for gap in gaps:
        now += gap
        place, given_until = next_place(given_until, now, per_second)
        assert place >= now
        if before is not None:
            assert place - before >= 1 / per_second - 1e-6
        before = place
