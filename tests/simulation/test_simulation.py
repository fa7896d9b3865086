"""Whatever goes wrong, in whatever order: every row generated once, paid once, its media kept, and nothing is stuck."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from runner.store.engine import Database
from tests.simulation.database import look, open_database
from tests.simulation.mutants import MUTANTS
from tests.simulation.scenario import FAULTS, RARE_FAULTS
from tests.simulation.seeds import first_failure
from tests.simulation.simulation import simulate

#: Seeds of a normal test run; `python -m tests.simulation` runs as many more as there is time for.
SEEDS = 300
PORTION = 50
#: Seeds within which a broken rule is found.
SOON = 60


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with open_database() as opened:
        yield opened


@pytest.fixture(autouse=True)
def without_warnings(caplog: pytest.LogCaptureFixture) -> None:
    """What the code warns of is what it is made to meet."""
    caplog.set_level(logging.CRITICAL)


@pytest.mark.parametrize("first", range(0, SEEDS, PORTION))
def test_every_promise_holds_whatever_goes_wrong(database: Database, first: int) -> None:
    for seed in range(first, first + PORTION):
        result = simulate(database, seed)
        assert not result.failure, f"{result.failure}\nreplay: python -m tests.simulation --seed {seed} --trace"


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_rule_is_found(database: Database, name: str) -> None:
    mutant = MUTANTS[name]
    found = first_failure(database, mutant.parts(), mutant.where, SOON)
    assert found is not None, f"{SOON} seeds do not show it"
    assert any(word in (found.failure or "") for word in mutant.shows), found.failure


def test_a_seed_always_takes_the_same_way(database: Database) -> None:
    first, second = (simulate(database, 4, traced=True) for _ in range(2))
    assert first == second
    assert len(first.trace) > 100


def test_with_every_fault_at_once_all_is_met_that_can_become_of_a_job(database: Database) -> None:
    often = {name: 0.01 if name in RARE_FAULTS else 0.15 for name in FAULTS}
    met: set[str] = set()
    for seed in range(60):
        # Every other user is one who resumes what was held, after a time in which nearly all answers were lost.
        lossy = {
            "faults": {"answer lost": 0.8, "key unreplayable": 0.2},
            "retries": False,
            "visits": 3,
            "calm_at": 300.0,
        }
        result = simulate(database, seed, where=lossy if seed % 2 else {"faults": often, "retries": True})
        assert not result.failure, f"seed {seed} with every fault: {result.failure}"
        met |= {row["kind"] for row in look(database, "SELECT DISTINCT kind FROM event")}
    assert met >= {
        *("accepted", "key_busy", "key_conflict", "insufficient_credits", "rejected", "backlog_full", "rate_limited"),
        *("unavailable", "unreachable", "unknown", "result", "not_ready", "read_failed", "run_failed", "forbidden"),
        *("run_succeeded", "request_not_found", "asset_saved", "asset_interrupted", "asset_link_dead"),
        *("retry", "resume"),
    }
