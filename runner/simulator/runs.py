"""The values that the simulated queue works on: submissions, runs, and what is said about them."""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass, field, replace
from enum import Enum

from runner.simulator.catalog import Model
from runner.simulator.faults import Markers
from runner.simulator.journal import Entry
from runner.simulator.outputs import RunInput


class Status(Enum):
    """Contract: `RouterQueueStatus`."""

    IN_QUEUE = "IN_QUEUE"
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"


class Verdict(Enum):
    """What the queue says to a submit."""

    ACCEPTED = "accepted"
    REPLAYED = "replayed"
    CONFLICT = "conflict"
    NO_CREDITS = "no_credits"
    BACKLOG_FULL = "backlog_full"


@dataclass(slots=True)
class Run:
    """One accepted request and its schedule."""

    id: str
    scope: str
    key: str
    model: str
    given: RunInput
    origin: str
    admitted: float
    duration: float
    #: The bucket that the run ends with; `None` is a success.
    fail: str | None = None
    moderated: bool = False
    #: Fields of the body that an alternate provider has no word for.
    dropped: tuple[str, ...] = ()
    started: float | None = None
    #: When the run ends, once it has started; infinity for one that never does.
    finish: float = math.inf
    completed: bool = False
    cancelled: bool = False
    #: Place in the order of admission; tells how many wait before it.
    ticket: int = 0
    #: How many waited before it when it was admitted: a replayed handle repeats this.
    first_position: int = 0
    #: Until when the last answer asked the caller to wait; 0 when it did not.
    not_before: float = 0.0
    #: How often the result was handed out.
    collected: int = 0

    @property
    def status(self) -> Status:
        """Where the run stood when the queue was last brought up to date."""
        if self.completed:
            return Status.COMPLETED
        return Status.IN_QUEUE if self.started is None else Status.IN_PROGRESS

    @property
    def error_type(self) -> str | None:
        """The bucket of a finished run that did not succeed."""
        if not self.completed:
            return None
        return "cancelled" if self.cancelled else self.fail


@dataclass(frozen=True, slots=True)
class Submission:
    """A submit that passed the checks of its form, before the queue decides on it."""

    scope: str
    key: str | None
    fingerprint: str
    model: Model
    given: RunInput
    origin: str
    markers: Markers = field(default_factory=Markers)
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Terms:
    """What a fault plan says about the submit at hand."""

    #: Runs that the account can pay for; `None` is no limit.
    credits: int | None = None
    #: One of the run faults, or `None`.
    fate: str | None = None
    fail_type: str = "provider_error"


def scope_of(api_key: str) -> str:
    """Names an API key's workspace without holding the key."""
    return hashlib.sha256(api_key.encode()).hexdigest()[:16]


def fingerprint_of(method: str, path: str, query: str, body: bytes) -> str:
    """What must not differ between two sends of one key (contract: `RouterIdempotencyConflict`)."""
    digest = hashlib.sha256(body)
    digest.update(f"\0{method}\0{path}\0{query}".encode())
    return digest.hexdigest()


#: Fields that follow from the order and times of the journal's entries.
_SCHEDULED = frozenset(
    {"started", "finish", "completed", "cancelled", "ticket", "first_position", "not_before", "collected"}
)


def run_entry(run: Run, fingerprint: str) -> Entry:
    """What a journal must keep of a run."""
    kept = {name: value for name, value in asdict(run).items() if name not in _SCHEDULED}
    if run.duration == math.inf:
        # JSON knows no infinity.
        kept["duration"] = "inf"
    return {"event": "run", "fingerprint": fingerprint} | kept


def run_from(entry: Entry) -> Run:
    """The run of an entry that `run_entry` made."""
    given = entry.pop("given")
    if not isinstance(given, dict):
        raise ValueError("the journal holds a run without its input")
    entry["dropped"] = tuple(entry.get("dropped", ()))  # type: ignore[arg-type]  # written by run_entry
    run = Run(given=RunInput(**given), **entry)  # type: ignore[arg-type]  # written by run_entry
    return replace(run, duration=float(run.duration))
