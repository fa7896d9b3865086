"""Which core a worker keeps to."""

from __future__ import annotations

import pytest

from tasks.cores import choose_core


@pytest.mark.parametrize(
    ("kept", "present", "chosen"),
    [
        # Alone, it stays where the system put it.
        ([], 2, 2),
        # Another keeps to that one.
        ([2], 2, 0),
        ([0, 1, 2], 0, 3),
        # All are taken: where the fewest are.
        ([0, 0, 1, 1, 2, 3, 3], 3, 2),
        ([0, 1, 2, 3], 1, 1),
        # The system does not say where, or names one that this process may not use.
        ([], None, 0),
        ([], 7, 0),
    ],
)
def test_the_least_used_core_and_if_it_can_be_the_present_one(
    kept: list[int], present: int | None, chosen: int
) -> None:
    assert choose_core([0, 1, 2, 3], kept, present) == chosen
