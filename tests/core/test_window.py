"""How much may be in flight: never nothing, never more than allowed, slowly up and quickly down."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.window import SHRINK_FACTOR, SHRINK_INTERVAL, affordable, grown, room, shrunk

NOW = 1_800_000_000.0


@given(st.data())
def test_the_window_stays_between_one_and_the_largest_whatever_happens(data: st.DataObject) -> None:
    largest = data.draw(st.integers(1, 500), label="largest")
    window, shrunk_at, now = float(largest), None, NOW
    for _ in range(data.draw(st.integers(1, 50), label="events")):
        now += data.draw(st.floats(-10, 10), label="seconds")
        if data.draw(st.booleans(), label="grows"):
            after = grown(window, largest)
            assert after >= window
        else:
            in_flight = data.draw(st.integers(0, 1000), label="in flight")
            after = shrunk(window, in_flight, shrunk_at, now)
            assert after <= window
            shrunk_at = now if after != window else shrunk_at
        window = after
        assert 1.0 <= window <= largest


@pytest.mark.parametrize(
    ("in_flight", "downloading", "more"),
    [(0, 0, 10), (4, 0, 6), (4, 10, 6), (4, 13, 3), (0, 20, 0), (10, 0, 0), (12, 0, -2), (4, 25, -9)],
)
def test_there_is_room_beside_what_is_in_flight_unless_downloads_pile_up(
    in_flight: int, downloading: int, more: int
) -> None:
    assert room(10.9, in_flight, downloading) == more


@pytest.mark.parametrize(
    ("quoted", "dearest", "unanswered", "more"),
    [
        # Nobody knows what one costs: one is sent to find out.
        (0.0, None, 0, 1),
        (0.0, None, 1, 0),
        # Sends are answered without a quote: there is no sum to keep to.
        (0.0, 0.0, 50, None),
        (0.03, 0.03, 0, 2),
        (0.03, 0.03, 2, 0),
        (0.09, 0.03, 0, 0),
        (0.08, 0.03, 0, 0),
        (0.50, 0.03, 0, -14),
    ],
)
def test_no_more_are_sent_than_could_be_paid_for(
    quoted: float, dearest: float | None, unanswered: int, more: int | None
) -> None:
    assert affordable(0.09, quoted, dearest, unanswered) == more


@given(st.integers(1, 500), st.integers(1, 2000))
def test_cents_add_up_to_the_limit_exactly(cents: int, rows: int) -> None:
    limit = rows * cents / 100
    quoted = 0.0
    for _ in range(rows):
        assert (affordable(limit, quoted, cents / 100, 0) or 0) >= 1
        quoted += cents / 100
    assert (affordable(limit, quoted, cents / 100, 0) or 0) <= 0


@pytest.mark.parametrize("window", [1, 4, 20])
def test_a_windows_worth_of_successes_makes_about_one_place_more(window: int) -> None:
    size = float(window)
    for _ in range(window):
        size = grown(size, largest=100)
    assert window + 0.7 < size <= window + 1


def test_the_largest_is_reached_and_not_passed() -> None:
    size = 1.0
    for _ in range(1000):
        size = grown(size, largest=8)
    assert size == 8.0


def test_a_smaller_largest_takes_effect_at_the_next_success() -> None:
    assert grown(50.0, largest=8) == 8.0


def test_a_refusal_takes_a_quarter_of_what_is_in_flight() -> None:
    assert shrunk(100.0, in_flight=40, shrunk_at=None, now=NOW) == 40 * SHRINK_FACTOR


def test_a_refusal_takes_a_quarter_of_the_window_where_more_than_that_is_in_flight() -> None:
    assert shrunk(20.0, in_flight=400, shrunk_at=None, now=NOW) == 20 * SHRINK_FACTOR


@pytest.mark.parametrize("in_flight", [0, 1])
def test_one_place_is_always_left(in_flight: int) -> None:
    assert shrunk(100.0, in_flight, shrunk_at=None, now=NOW) == 1.0


@pytest.mark.parametrize(
    ("since", "cuts"),
    [
        (0.0, False),
        (SHRINK_INTERVAL - 0.1, False),
        (SHRINK_INTERVAL, True),
        (3600.0, True),
        # The clock went back: the last cut is of unknown age, so this refusal counts.
        (-1.0, True),
    ],
)
def test_refusals_of_one_crowd_cut_once(since: float, cuts: bool) -> None:
    after = shrunk(100.0, in_flight=100, shrunk_at=NOW - since, now=NOW)
    assert after == (75.0 if cuts else 100.0)
