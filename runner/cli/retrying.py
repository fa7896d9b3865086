"""New paid runs, after they have been counted and agreed to."""

from __future__ import annotations

import time
from collections.abc import Sequence

from runner.cli.asking import agree
from runner.cli.context import Context
from runner.cli.output import err
from runner.core.errors import UsageError
from runner.core.types import JobState, OutcomeKind, Policy
from runner.store.batches import BatchRecord

#: What a retry takes where no state is named: held jobs may still be going on, so they must be asked for.
_USUAL = (JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED)
_POSSIBLE = (*_USUAL, JobState.HELD)


def retry_jobs(
    context: Context, batch: BatchRecord, states: Sequence[str], error_types: Sequence[str], *, yes: bool
) -> bool:
    """Give the chosen jobs new keys, if the user agrees. Whether any job was put back to work."""
    chosen = _states(states)
    reasons = context.queries.reasons(batch.id, chosen)
    count = sum(alike.jobs for alike in reasons if not error_types or alike.error_type in error_types)
    if not count:
        err.print(f"No job of {batch.name} is {' or '.join(chosen)} in that way: nothing to retry.")
        return False
    runs = "1 new paid run" if count == 1 else f"{count:,} new paid runs"
    if not yes:
        paid = context.queries.perhaps_paid(batch.id, chosen, error_types)
        before = f" {paid:,} of these jobs may have been paid for already." if paid else ""
        agree(f"{before.strip()} Start {runs} of {batch.name}?".strip())
    context.batches.move(batch.id, OutcomeKind.RETRY, chosen, time.time(), Policy(), error_types)
    err.print(f"{runs} of {batch.name} will be sent.")
    return True


def _states(names: Sequence[str]) -> Sequence[JobState]:
    known = {state.value: state for state in _POSSIBLE}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(
            f"jobs that are `{unknown[0]}` cannot be retried", advice=f"name one of {', '.join(known)} with --state"
        )
    return [known[name] for name in names] or _USUAL
