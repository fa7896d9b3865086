"""What a death costs, by where it happens: `python -m tests.crash` prints a table in Markdown.

The same tests as always, two at a time so that they do not slow each other down. For each boundary and each command
that crosses it: how many more calls the Router has had than without the death, and the seconds from the second start
until the batch was finished.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

HEAD = ("killed at", "`run`, SQLite", "`submit`, PostgreSQL", "`worker`, Redis and PostgreSQL")
COMMANDS = ("run", "submit", "worker")


@dataclass
class Costs:
    """A plugin of pytest that keeps what the tests have measured."""

    #: Boundary and detail, then command: extra calls and seconds.
    by_point: dict[str, dict[str, tuple[int, float]]] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest after each test."""
        told = dict(report.user_properties)
        if report.when == "call" and report.passed and "point" in told:
            cost = (int(str(told["extra_calls"])), float(str(told["seconds"])))
            self.by_point.setdefault(str(told["point"]), {})[str(told["command"])] = cost

    def lines(self) -> list[str]:
        """The table."""
        found = [f"| {' | '.join(HEAD)} |", "| --- " + "| ---: " * len(COMMANDS) + "|"]
        for point, costs in self.by_point.items():
            cells = [_cell(costs.get(command)) for command in COMMANDS]
            found.append(f"| {' | '.join((point, *cells))} |")
        for name, choose in (("median", statistics.median), ("most", max)):
            cells = [self._over_all(command, choose) for command in COMMANDS]
            found.append(f"| *{name}* | {' | '.join(cells)} |")
        return found

    def _over_all(self, command: str, choose: Callable[[Sequence[float]], float]) -> str:
        costs = [costs[command] for point, costs in self.by_point.items() if command in costs and point != NO_DEATH]
        if not costs:
            return ""
        return _cell((round(choose([calls for calls, _ in costs])), choose([seconds for _, seconds in costs])))


#: The row of the batch that nothing happens to.
NO_DEATH = "no death"


def _cell(cost: tuple[int, float] | None) -> str:
    return "" if cost is None else f"{cost[0]:+d} calls, {cost[1]:.1f} s"


def main() -> int:
    """Run the tests and print the table; returns pytest's exit status."""
    os.environ.setdefault("COMFY_BATCH_TEST_CRASH_LANES", "2")
    costs = Costs()
    status = pytest.main(["-q", "tests/crash/test_every_boundary.py", *sys.argv[1:]], plugins=[costs])
    print("\n".join(costs.lines()))  # noqa: T201  # a command's output
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
