"""The simulated queue: every decision about requests, keys and charges. Time is always handed in.

A run's life is a schedule computed from times, not a thread: it is admitted, starts when one of the slots is free,
and ends after its duration. The schedule is brought up to date whenever the queue is asked something.

Rules on money (contract: the `Idempotency-Key` parameter and the `cancelled`, `queue_timeout` buckets):

* A key names its first request for its lifetime, counted from that first use; a repeat does not extend it.
* A success is charged when the run ends. A failure is not, but for a policy refusal by a model that says `yes`.
* A cancel of a waiting request is free. A cancel of a running one ends it at once and is charged: this simulator
  takes the harder of the two outcomes that the contract allows.
* A refused submit records nothing, so its key stays free.
"""

from __future__ import annotations

import bisect
import heapq
import math
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from runner.simulator.catalog import CATALOG
from runner.simulator.config import SimulatorConfig
from runner.simulator.journal import Entry, Journal
from runner.simulator.ledger import Ledger
from runner.simulator.outputs import Finished
from runner.simulator.runs import Run, Status, Submission, Terms, Verdict, run_entry, run_from

#: The wait between two reads of a running request never exceeds this.
_LONGEST_RUNNING_WAIT = 5
#: The same for a waiting one.
_LONGEST_QUEUED_WAIT = 30
#: Clocks of a client and the simulator differ by a little when a wait ends.
_CLOCK_SLACK = 0.05
_NO_TERMS = Terms()


@dataclass(frozen=True, slots=True)
class _KeyRecord:
    fingerprint: str
    request_id: str
    first_used: float


class SimulatedQueue:
    """Requests, keys and charges of a simulated Router."""

    def __init__(self, config: SimulatorConfig, new_id: Callable[[], str] = lambda: str(uuid.uuid4())) -> None:
        self.ledger = Ledger()
        self._config = config
        self._new_id = new_id
        self._now = 0.0
        self._runs: dict[str, Run] = {}
        self._keys: dict[tuple[str, str], _KeyRecord] = {}
        self._waiting: deque[Run] = deque()
        self._queued = 0
        self._running = 0
        self._ends: list[tuple[float, int, Run]] = []
        self._tickets = 0
        #: Tickets of cancelled runs that still stand in the line, ascending.
        self._gone: list[int] = []
        self._journal: Journal | None = None
        if config.journal is not None:
            journal = Journal(config.journal)
            for entry in journal.entries():
                self._restore(entry)
            self._journal = journal

    def close(self) -> None:
        """Let go of the journal's file."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    # Submit

    def count_send(self, key: str | None, model: str) -> None:
        """A submit arrived, whatever becomes of it."""
        self.ledger.account(key or "", model).sends += 1
        self._write({"event": "send", "key": key or "", "model": model})

    def known(self, scope: str, key: str, fingerprint: str, now: float) -> tuple[Verdict, Run | None] | None:
        """What a key's record says; `None` where it is free, or free again."""
        self.advance(now)
        record = self._keys.get((scope, key))
        if record is None or self._now - record.first_used >= self._config.key_lifetime:
            return None
        if record.fingerprint != fingerprint:
            return Verdict.CONFLICT, None
        return Verdict.REPLAYED, self._runs[record.request_id]

    def submit(self, submission: Submission, now: float, terms: Terms = _NO_TERMS) -> tuple[Verdict, Run | None]:
        """Accept a submission, or say why not."""
        self.advance(now)
        if submission.key is not None:
            known = self.known(submission.scope, submission.key, submission.fingerprint, now)
            if known is not None:
                return known
        if terms.credits is not None and self.ledger.runs >= terms.credits:
            return Verdict.NO_CREDITS, None
        if self._running >= self._config.concurrency and self._queued >= self._config.backlog:
            return Verdict.BACKLOG_FULL, None
        run = self._new_run(submission, terms)
        self._write(run_entry(run, submission.fingerprint))
        self._admit(run, submission.fingerprint)
        return Verdict.ACCEPTED, run

    def _new_run(self, submission: Submission, terms: Terms) -> Run:
        markers = submission.markers
        own = submission.model.duration if self._config.duration is None else self._config.duration
        duration = own if markers.slow is None else markers.slow
        if markers.never or terms.fate == "never_finish":
            duration = math.inf
        return Run(
            id=self._new_id(),
            scope=submission.scope,
            key=submission.key or "",
            model=submission.model.id,
            given=submission.given,
            origin=submission.origin,
            dropped=submission.dropped,
            admitted=self._now,
            duration=duration,
            fail=terms.fail_type if terms.fate == "fail" else markers.fail,
            moderated=markers.moderated or terms.fate == "moderate",
        )

    def _admit(self, run: Run, fingerprint: str) -> None:
        self._runs[run.id] = run
        if run.key:
            self._keys[run.scope, run.key] = _KeyRecord(fingerprint, run.id, run.admitted)
        self.ledger.accepted(run.key, run.model, run.id)
        self._tickets += 1
        run.ticket = self._tickets
        if self._running < self._config.concurrency:
            self._start(run, run.admitted)
        else:
            self._waiting.append(run)
            self._queued += 1
            run.first_position = self.position(run)
        self.ledger.in_flight_peak = max(self.ledger.in_flight_peak, self._running + self._queued)
        self.advance(run.admitted)

    # The schedule

    def advance(self, now: float) -> None:
        """Bring the schedule up to date. Time never goes back: an earlier `now` changes nothing."""
        self._now = max(self._now, now)
        while self._ends and self._ends[0][0] <= self._now:
            at, _, run = heapq.heappop(self._ends)
            if run.completed:
                # Cancelled before its time; its slot was freed then.
                continue
            self._running -= 1
            self._complete(run)
            self._start_next(at)

    def _start(self, run: Run, at: float) -> None:
        run.started = at
        run.finish = at + run.duration
        self._running += 1
        if run.finish < math.inf:
            heapq.heappush(self._ends, (run.finish, run.ticket, run))

    def _start_next(self, at: float) -> None:
        while self._waiting and self._running < self._config.concurrency:
            run = self._waiting.popleft()
            if run.completed:
                self._gone.pop(0)
                continue
            self._queued -= 1
            self._start(run, max(at, run.admitted))

    def _complete(self, run: Run) -> None:
        run.completed = True
        if self._is_charged(run):
            self.ledger.charged(run.key, run.model)

    def _is_charged(self, run: Run) -> bool:
        if run.cancelled:
            return run.started is not None
        if run.fail == "content_policy_violation":
            return CATALOG[run.model].charges_on_policy_rejection == "yes"
        return run.fail is None

    # Reads and cancel

    def find(self, request_id: str, model: str, scope: str | None, now: float) -> Run | None:
        """A request of this caller under this model (contract: `request_not_found` hides everyone else's)."""
        self.advance(now)
        run = self._runs.get(request_id)
        if run is None or run.model != model or (scope is not None and run.scope != scope):
            return None
        return run

    def by_id(self, request_id: str, now: float) -> Run | None:
        """A request whoever sent it: a media link carries its own proof."""
        self.advance(now)
        return self._runs.get(request_id)

    def is_gone(self, run: Run) -> bool:
        """The request has aged out of its retention (contract: `410`)."""
        return run.completed and self._now >= run.finish + self._config.retention

    def position(self, run: Run) -> int:
        """How many requests wait before this one (contract: `RouterQueuePosition`)."""
        if not self._waiting or run.status is not Status.IN_QUEUE:
            return 0
        # Tickets in the line follow each other without a gap.
        return run.ticket - self._waiting[0].ticket - bisect.bisect_left(self._gone, run.ticket)

    def poll_after(self, run: Run) -> int | None:
        """Whole seconds until another read is worth it (contract: `RouterQueuePollAfterHeader`)."""
        if run.completed:
            return None
        own = min(run.duration, float(_LONGEST_RUNNING_WAIT))
        if run.status is Status.IN_PROGRESS:
            remaining = min(run.finish - self._now, own)
            return max(1, math.ceil(remaining))
        rounds, place = divmod(self.position(run), self._config.concurrency)
        first = min(self._end_of(place) - self._now, own)
        return max(1, min(_LONGEST_QUEUED_WAIT, math.ceil(first + rounds * own + own)))

    def _end_of(self, place: int) -> float:
        """When the running request ends that is number `place`, from 0, to do so; never, where none is known to."""
        ends = heapq.nsmallest(place + 1, self._ends)
        return ends[place][0] if place < len(ends) else math.inf

    def count_read(self, run: Run) -> None:
        """A read arrived; notes it when it came before the wait that the last answer named was over."""
        if self._now + _CLOCK_SLACK < run.not_before:
            self.ledger.early_polls += 1

    def promise_wait(self, run: Run, seconds: int | None) -> None:
        """Remember the wait that the present answer names."""
        run.not_before = 0.0 if seconds is None else self._now + seconds

    def cancel(self, run: Run, now: float) -> bool:
        """Cancel a request; false when it had ended before."""
        self.advance(now)
        if run.completed:
            return False
        self._write({"event": "cancel", "id": run.id, "at": self._now, "started": run.started is not None})
        self._withdraw(run)
        # The wait that was named before was of a run that went on.
        run.not_before = 0.0
        return True

    def _withdraw(self, run: Run) -> None:
        run.cancelled = True
        run.finish = self._now
        was_running = run.started is not None
        self._complete(run)
        if was_running:
            self._running -= 1
            self._start_next(self._now)
        else:
            self._queued -= 1
            # Its place in the line is passed over when its turn comes.
            bisect.insort(self._gone, run.ticket)

    def finished(self, run: Run, links_from: float | None = None) -> Finished:
        """A succeeded run as its output sees it."""
        begin = run.finish if links_from is None else links_from
        return Finished(
            request_id=run.id,
            model=run.model,
            given=run.given,
            started=run.admitted if run.started is None else run.started,
            finished=run.finish,
            origin=run.origin,
            links_until=begin + self._config.link_lifetime,
            secret=f"simulator-{self._config.seed}",
            moderated=run.moderated,
        )

    def ledger_as_json(self, now: float, *, summary: bool) -> dict[str, object]:
        """The ledger as of now."""
        self.advance(now)
        return self.ledger.as_json(running=self._running, queued=self._queued, summary=summary)

    # The journal

    def _write(self, entry: Entry) -> None:
        if self._journal is not None:
            self._journal.write(entry)

    def _restore(self, entry: Entry) -> None:
        event = entry.pop("event")
        if event == "send":
            self.ledger.account(str(entry["key"]), str(entry["model"])).sends += 1
        elif event == "run":
            fingerprint = str(entry.pop("fingerprint"))
            run = run_from(entry)
            self.advance(run.admitted)
            self._admit(run, fingerprint)
        else:
            self._restore_cancel(str(entry["id"]), float(str(entry["at"])), bool(entry["started"]))

    def _restore_cancel(self, request_id: str, at: float, started: bool) -> None:
        run = self._runs[request_id]
        self.advance(at)
        if run.completed:
            # Another concurrency or an edited file; the charge that was made then stands.
            return
        if started and run.started is None:
            # Fewer slots than before: it had started all the same, and that decides on the charge.
            self._waiting.remove(run)
            self._queued -= 1
            self._start(run, run.admitted)
        self._withdraw(run)
