"""`Retry-After` as servers write it: whatever stands there, a wait that can be kept, or none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runner.core.retryafter import CEILING, FLOOR, parse_retry_after

#: Wed, 21 Oct 2026 07:28:00 GMT
MOMENT = datetime(2026, 10, 21, 7, 28, tzinfo=UTC).timestamp()
NOW = MOMENT - 90.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("1", 1.0),
        ("3", 3.0),
        ("  120 ", 120.0),
        ("007", 7.0),
        # A fraction is rounded up.
        ("0.5", 1.0),
        ("1.2", 2.0),
        ("29.0", 29.0),
        # Zero and the past are the floor.
        ("0", FLOOR),
        ("0.0", FLOOR),
        ("-0", FLOOR),
        ("-5", FLOOR),
        # More than a day outlives every key and every result.
        ("86400", CEILING),
        ("86401", CEILING),
        ("9999999999", CEILING),
        ("9" * 32, CEILING),
        # A date is counted from now.
        ("Wed, 21 Oct 2026 07:28:00 GMT", 90.0),
        ("Wed, 21 Oct 2026 07:28:00 +0000", 90.0),
        ("Wed, 21 Oct 2026 07:28:00 -0000", 90.0),
        ("Wed, 21 Oct 2026 09:28:00 +0200", 90.0),
        ("Wed, 21 Oct 2026 07:28:00", 90.0),
        ("Wednesday, 21-Oct-26 07:28:00 GMT", 90.0),
        ("Wed Oct 21 07:28:00 2026", 90.0),
        ("Wed, 21 Oct 2026 07:26:30 GMT", FLOOR),
        ("Wed, 21 Oct 2015 07:28:00 GMT", FLOOR),
        ("Thu, 01 Jan 1970 00:00:00 GMT", FLOOR),
        ("Thu, 31 Dec 2099 23:59:59 GMT", CEILING),
    ],
)
def test_a_wait_that_is_named_is_kept_within_bounds(value: str, seconds: float) -> None:
    assert parse_retry_after(value, NOW) == seconds


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "   ",
        "nan",
        "NaN",
        "inf",
        "-inf",
        "Infinity",
        "1e999",
        "1e3",
        "3, 5",
        "3; 5",
        "5s",
        "1_000",
        "1,5",
        "0x10",
        "٣",
        "²",
        ".",
        "5.",
        "--5",
        "soon",
        "Wed",
        "Wed, 99 Oct 2026 07:28:00 GMT",
        "Wed, 21 Oct 2026 25:61:61 GMT",
        "Wed, 21 Oct 99999 07:28:00 GMT",
        "Wed, 21 Oct 2026 07:28:00 +999999999",
        "9" * 5000,
    ],
)
def test_junk_names_no_wait_and_leaves_it_to_the_backoff(value: str | None) -> None:
    assert parse_retry_after(value, NOW) is None


@given(
    st.one_of(
        st.text(max_size=40),
        st.text(alphabet="0123456789+-.,eE naif_", max_size=40),
        st.from_regex(r"[A-Z][a-z]{2},? ?\d{1,3}[ -][A-Z][a-z]{2}[ -]\d{1,6} \d{1,3}:\d{1,3}(:\d{1,3})? ?.{0,8}"),
    ),
    st.floats(-1e12, 1e12),
)
@example("Mon, 01 Jan 0001 00:00:00 +2359", 0.0)
@example("Fri, 31 Dec 9999 23:59:59 -2359", 0.0)
def test_whatever_stands_there_gives_a_wait_within_bounds_or_none(value: str, now: float) -> None:
    seconds = parse_retry_after(value, now)
    assert seconds is None or FLOOR <= seconds <= CEILING


@given(st.integers(1, int(CEILING)))
def test_whole_seconds_are_taken_as_they_are(seconds: int) -> None:
    assert parse_retry_after(str(seconds), NOW) == seconds


@given(st.integers(1, int(CEILING)))
def test_a_date_and_the_seconds_until_it_are_the_same_wait(seconds: int) -> None:
    moment = datetime.fromtimestamp(NOW, UTC) + timedelta(seconds=seconds)
    assert parse_retry_after(format_datetime(moment, usegmt=True), NOW) == seconds
