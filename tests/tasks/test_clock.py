"""The time of a process while the wall clock jumps."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tasks.clock import SteadyClock, elapsed


@dataclass
class Machine:
    wall: float = 1_800_000_000.0
    uptime: float = 5000.0

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.uptime += seconds

    def clock(self, *, counts_sleep: bool) -> SteadyClock:
        return SteadyClock(lambda: self.wall, lambda: self.uptime, counts_sleep=counts_sleep)


@pytest.mark.parametrize("counts_sleep", [True, False])
def test_it_starts_with_the_wall_clock_and_goes_on_with_time(counts_sleep: bool) -> None:
    machine = Machine()
    clock = machine.clock(counts_sleep=counts_sleep)
    begin = clock()
    assert begin == machine.wall
    machine.passes(60)
    assert clock() == begin + 60


@pytest.mark.parametrize("counts_sleep", [True, False])
def test_a_wall_clock_that_is_put_back_is_not_followed(counts_sleep: bool) -> None:
    machine = Machine()
    clock = machine.clock(counts_sleep=counts_sleep)
    begin = clock()
    machine.wall -= 7200
    machine.passes(1)
    assert clock() == begin + 1


def test_one_that_is_put_forward_is_not_followed_where_a_better_one_is_there() -> None:
    machine = Machine()
    clock = machine.clock(counts_sleep=True)
    begin = clock()
    machine.wall += 7200
    assert clock() == begin


def test_where_no_clock_counts_the_machines_sleep_a_key_never_looks_younger_than_it_is() -> None:
    machine = Machine()
    clock = machine.clock(counts_sleep=False)
    begin = clock()
    machine.wall += 8 * 3600
    assert clock() == begin + 8 * 3600
    # Put back again, it is not followed: time does not go back.
    machine.wall -= 3600
    machine.passes(10)
    assert clock() == begin + 8 * 3600 + 10


def test_the_clock_of_this_machine_does_not_go_back() -> None:
    first = elapsed()
    assert elapsed() >= first
