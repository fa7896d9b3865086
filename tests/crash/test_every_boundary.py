"""Dead at each boundary in turn, begun again by the same command: the batch ends as if nothing had happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.crash.beds import Ward
from tests.crash.boundaries import Crossing, crossed_by
from tests.crash.cases import Case, commands_of
from tests.crash.ends import End

pytestmark = pytest.mark.acceptance

COMMANDS = ("run", "submit", "worker")
ENGINES = ["embedded", pytest.param("broker", marks=pytest.mark.service)]


def first_crossings() -> Iterator[Case]:
    """Every boundary of each command."""
    return (Case(command, *crossing) for command in COMMANDS for crossing in crossed_by(command))


def later_crossings(command: str, trace: list[Crossing]) -> list[Case]:
    """All but the first crossings of a clean run."""
    counts = Counter(trace)
    return [Case(command, *crossing, n) for crossing, count in counts.items() for n in range(2, count + 1)]


def _of_a_worker(case: Case) -> bool:
    """Whether it is about what a worker of its own has and `run` has not: a broker, and another database."""
    return case.boundary == "after publish" or (case.boundary == "after commit" and case.detail in {"claim", "apply"})


def parameter(case: Case) -> object:
    marks = [pytest.mark.service] if case.engine == "broker" else []
    if case.command == "worker" and not _of_a_worker(case):
        # `run` dies here, too, and does the same; `make chaos` has both.
        marks.append(pytest.mark.chaos)
    return pytest.param(case, marks=marks, id=str(case))


def differences(end: End, clean: End) -> list[str]:
    """What is not as it would have been without the death."""
    found = list(end.faults)
    for name, row in clean.rows.items():
        if end.rows.get(name) != row:
            found.append(f"row {name}: {end.rows.get(name)} where it should be {row}")
    if end.early_polls > end.lost_reads:
        found.append(f"{end.early_polls} early polls, of which {end.lost_reads} could not know better")
    if end.exit_code != clean.exit_code:
        found.append(f"exit status {end.exit_code} where it should be {clean.exit_code}")
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_a_batch_that_nothing_happens_to_ends_without_fault(
    engine: str, ward: Ward, record_property: Callable[[str, object], None]
) -> None:
    end, late = ward.clean().end, ward.clean(late=True).end
    record_property("point", "no death")
    record_property("command", commands_of(engine)[-1])
    record_property("extra_calls", 0)
    record_property("seconds", end.seconds)
    assert [*end.faults, *late.faults] == []
    assert end.early_polls + late.early_polls == 0
    assert {name: row for name, row in late.rows.items() if name != "late"} == end.rows
    assert {name: (row.state, row.billed, len(row.assets), row.kept_as_file) for name, row in late.rows.items()} == {
        "inline": ("succeeded", 1, 1, False),
        "text": ("succeeded", 1, 0, True),
        "failing": ("failed", 0, 0, False),
        "slow": ("succeeded", 1, 1, False),
        # It was running when it was cancelled, and this Router charges for that.
        "late": ("cancelled", 1, 0, False),
        "two": ("succeeded", 1, 2, False),
    }


@pytest.mark.parametrize("case", [parameter(case) for case in first_crossings()])
def test_a_death_there_changes_nothing(case: Case, ward: Ward, record_property: Callable[[str, object], None]) -> None:
    end, clean = ward.end_of(case), ward.clean(late=case.late).end
    record_property("point", f"{case.boundary} {case.detail}".strip())
    record_property("command", case.command)
    record_property("extra_calls", sum(end.calls.values()) - sum(clean.calls.values()))
    record_property("seconds", end.seconds)
    assert differences(end, clean) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_each_command_crosses_what_its_cases_are_made_of_and_nothing_else(engine: str, ward: Ward) -> None:
    traces = ward.clean(late=True).traces
    for command in commands_of(engine):
        assert set(traces[command]) == set(crossed_by(command)), command


@pytest.mark.chaos
@pytest.mark.parametrize(("engine", "command"), [("embedded", "run"), ("broker", "submit"), ("broker", "worker")])
def test_a_death_at_any_later_crossing_changes_nothing(engine: str, command: str, ward: Ward) -> None:
    clean = ward.clean()
    cases = later_crossings(command, clean.traces[command])
    ward.begin(cases)
    ends = {case: ward.end_of(case) for case in cases}
    found = {str(case): differences(end, clean.end) for case, end in ends.items()}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
    assert sum(end.killed for end in ends.values()) > 0.8 * len(cases)
