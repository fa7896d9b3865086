"""What a simulator is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from runner.simulator.faults import FaultPlan


@dataclass(frozen=True, slots=True)
class SimulatorConfig:
    """Everything that shapes a simulated Router. Durations are seconds."""

    host: str = "127.0.0.1"
    #: 0 lets the system choose a free one.
    port: int = 0
    #: How long a run takes once it has started; `None` leaves each model its own, 0 is done at once.
    duration: float | None = None
    #: Runs at a time; the others wait IN_QUEUE.
    concurrency: int = 40
    #: Requests waiting IN_QUEUE before a submit is refused with `429 queue_backlog_full`.
    backlog: int = 100_000
    #: How long a finished request can be read; then `410`.
    retention: float = 24 * 3600
    #: How long a media link works after the run's end; then `403` with an XML body.
    link_lifetime: float = 3600
    #: How long an `Idempotency-Key` names its first request; afterwards it starts a new, paid run.
    key_lifetime: float = 24 * 3600
    #: `None` accepts any key that is not empty.
    api_keys: frozenset[str] | None = None
    #: An append-only file from which requests, keys and charges survive a restart or `kill -9`.
    journal: Path | None = None
    faults: FaultPlan = field(default_factory=FaultPlan)
    #: Signs media links and colours pictures.
    seed: int = 0

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ValueError("concurrency: at least one run at a time is needed")
        if self.duration is not None and self.duration < 0:
            raise ValueError("duration: a run cannot take less than no time")
