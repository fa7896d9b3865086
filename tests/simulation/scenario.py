"""What a seed decides beforehand: how large the scenario is, and what goes wrong in it how often."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

#: Faults that happen by chance, each at a boundary of its own.
FAULTS = (
    # What befalls messages and workers.
    "message lost",
    "message doubled",
    "message late",
    "broker away",
    "worker dies",
    "worker stalls",
    "disk full",
    "commit fails",
    # What befalls calls on their way.
    "unreachable",
    "request lost",
    "answer lost",
    "answer spoilt",
    # What the Router says.
    "rate limited",
    "unavailable",
    "refused for now",
    "out of credits",
    "unauthorized",
    "not enabled",
    "key unreplayable",
    "read fails",
    "not found",
    "odd wait",
    "foreign links",
    # What media hosts do.
    "download breaks",
    "media host fails",
    "link dead",
)
#: How often a fault happens that a seed has chosen.
_RATES = (0.02, 0.08, 0.2, 0.5, 0.5, 0.9)
#: The same for doubled messages: each that comes too early is sent again, so that they would never end.
_DOUBLED = (0.02, 0.08, 0.2)
#: The same for what ends a worker or stops everything: a life of one boundary teaches nothing.
_RARE = (0.003, 0.01, 0.03)
#: Faults that happen rarely in any scenario.
RARE_FAULTS = frozenset({"worker dies", "worker stalls", "unauthorized", "disk full", "not enabled", "commit fails"})


@dataclass(frozen=True, slots=True)
class Scenario:
    """One seed's circumstances."""

    #: Jobs of each batch.
    batches: tuple[int, ...]
    window: int
    workers: int
    threads: int
    #: Chance by the name of the fault.
    faults: dict[str, float]
    #: When things stop going wrong, in seconds after the start.
    calm_at: float
    #: How long a run takes at most, in seconds.
    longest_run: float
    #: How long a media link lives, in seconds.
    link_life: float
    #: Reading a result again gives fresh links.
    fresh_links: bool
    #: Requests that the Router lets wait and run at a time.
    capacity: int
    #: Seconds by which the workers' clocks differ at most.
    skew: float
    #: The clock jumps, once in a while.
    clock_jumps: bool
    #: All messages live in the worker's own memory, and die with it.
    embedded: bool
    breaker: int
    longest_countdown: float
    calls_per_second: float | None
    #: How often a user comes back to a batch that stands still, and how long that takes at most, in seconds.
    visits: int
    longest_absence: float
    #: The user asks for new paid runs, too.
    retries: bool


def _rates(fault: str) -> tuple[float, ...]:
    if fault in RARE_FAULTS:
        return _RARE
    return _DOUBLED if fault == "message doubled" else _RATES


def draw(rng: Random) -> Scenario:
    """The circumstances of a seed."""
    share = rng.choice((0.05, 0.15, 0.3, 0.5))
    faults = {name: rng.choice(_rates(name)) for name in FAULTS if rng.random() < share}
    return Scenario(
        batches=rng.choice(((2,), (3,), (4,), (5,), (2, 1), (2, 2))),
        window=rng.randint(1, 4),
        workers=rng.choice((1, 1, 2, 2, 3)),
        threads=rng.randint(1, 3),
        faults=faults,
        calm_at=rng.choice((20.0, 60.0, 120.0, 300.0)),
        longest_run=rng.choice((0.2, 3.0, 3.0, 20.0)),
        link_life=rng.choice((1.0, 15.0, 600.0, 86400.0)),
        fresh_links=rng.random() < 0.7,
        capacity=rng.choice((1, 2, 100, 100)),
        skew=rng.choice((0.0, 0.0, 0.3)),
        clock_jumps=rng.random() < 0.15,
        embedded=rng.random() < 0.4,
        breaker=rng.choice((0, 2, 10)),
        longest_countdown=rng.choice((60.0, 60.0, 5.0)),
        calls_per_second=rng.choice((None, None, None, 2.0)),
        visits=rng.choice((0, 1, 2, 3)),
        longest_absence=rng.choice((60.0, 3600.0, 40 * 3600.0)),
        retries=rng.random() < 0.4,
    )
