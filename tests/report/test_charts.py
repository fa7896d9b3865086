"""Charts of the report: every job in one bar, whatever the span."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.types import JobState
from runner.report.charts import MOST_BARS, Chart, durations, over_time
from runner.report.wording import duration
from runner.store.queries import Timing

ENDED = st.sampled_from([JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED])
TIMINGS = st.lists(
    st.builds(
        lambda state, start, took: Timing(state, "acme/paint", start, start + took),
        ENDED,
        st.floats(1.7e9, 1.9e9),
        st.floats(-5, 1e7),
    ),
    min_size=1,
    max_size=40,
)


def jobs_in(chart: Chart) -> int:
    return sum(int(part.title.split()[-2].replace(",", "")) for part in chart.parts)


class TestBars:
    @given(TIMINGS)
    def test_every_job_stands_in_one_bar_and_every_bar_within_the_drawing(self, timings: list[Timing]) -> None:
        for chart in (over_time(timings), durations(timings)):
            assert chart is not None
            assert jobs_in(chart) == len(timings)
            for part in chart.parts:
                assert 0 <= part.x < chart.width
                assert part.height > 0
                assert -1e-6 <= part.y <= chart.height

    @given(TIMINGS)
    def test_there_are_never_too_many_bars(self, timings: list[Timing]) -> None:
        chart = over_time(timings)
        assert chart is not None
        assert len({part.x for part in chart.parts}) <= MOST_BARS + 1

    def test_a_bar_is_made_of_what_succeeded_failed_and_the_rest_from_the_ground_up(self) -> None:
        timings = [Timing(state, "m", 0.0, 1.0) for state in JobState if state.value in KINDS_BY_STATE]
        chart = over_time(timings)
        assert chart is not None
        assert [(part.kind, part.title) for part in chart.parts] == [
            ("succeeded", "0 s: 1 succeeded"),
            ("failed", "0 s: 1 failed"),
            ("other", "0 s: 2 other"),
        ]
        assert [part.y for part in chart.parts] == sorted((part.y for part in chart.parts), reverse=True)
        assert chart.most == 4

    def test_there_is_no_drawing_of_nothing(self) -> None:
        nothing = [Timing(JobState.CANCELLED, "m", None, None)]
        assert (over_time(nothing), durations(nothing)) == (None, None)


KINDS_BY_STATE = {"succeeded", "failed", "cancelled", "expired"}


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.43, "0.4 s"), (2.0, "2 s"), (89, "89 s"), (180, "3 min"), (7800, "2 h 10 min"), (345600, "4 d")],
)
def test_a_duration_is_told_as_people_tell_it(seconds: float, words: str) -> None:
    assert duration(seconds, tenths=True) == words
