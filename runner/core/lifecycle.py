"""The life of a job as data: which events a state knows, and what each makes of it.

`TABLE` maps a state and an event to a rule of `runner.core.rules`; `decide` looks the rule up and applies it.
Nothing else in the program assigns a state.
"""

from __future__ import annotations

from collections.abc import Mapping

from runner.core.errors import ImpossibleEvent
from runner.core.rules import commands, common, media, reading, submitting
from runner.core.rules.common import Rule
from runner.core.types import AssetState, Job, JobState, Outcome, OutcomeKind, Policy, Reason, Transition

O = OutcomeKind  # noqa: E741  # one letter keeps the table a table


def decide(job: Job, outcome: Outcome, now: float, policy: Policy) -> Transition:
    """What `outcome`, met at `now` (Unix seconds), makes of `job`.

    Raises `ImpossibleEvent` when the job's state does not know the event.
    """
    rule = TABLE.get((job.state, outcome.kind))
    if rule is None:
        raise ImpossibleEvent(job.state, outcome.kind)
    return rule(job, outcome, now, policy)


_PENDING: Mapping[OutcomeKind, Rule] = {
    O.ADMITTED: submitting.admit,
    O.CANCEL: commands.withdraw,
}

_SUBMITTING: Mapping[OutcomeKind, Rule] = {
    O.WITHDRAWN: submitting.withdraw,
    O.CANCEL: commands.withdraw,
    O.ACCEPTED: submitting.accepted,
    O.KEY_BUSY: submitting.wait_for_key,
    O.KEY_CONFLICT: submitting.hold(Reason.KEY_CONFLICT),
    O.KEY_EXPIRED: submitting.hold(Reason.KEY_EXPIRED),
    O.INSUFFICIENT_CREDITS: submitting.release_and_pause("insufficient_credits", whole_credential=False),
    O.UNAUTHORIZED: submitting.release_and_pause("unauthorized", whole_credential=True),
    O.FORBIDDEN: submitting.release_and_pause("forbidden", whole_credential=True),
    O.ACCOUNT_NOT_ENABLED: submitting.release_and_pause("not_enabled", whole_credential=True),
    O.MODEL_NOT_QUEUEABLE: submitting.refused,
    O.MODEL_NOT_FOUND: submitting.refused,
    O.REJECTED: submitting.refused,
    O.BACKLOG_FULL: submitting.release_and_shrink,
    O.CONCURRENCY_LIMIT: submitting.release_and_shrink,
    O.RATE_LIMITED: common.cool_down,
    O.UNAVAILABLE: common.unavailable,
    O.UNREACHABLE: submitting.unreachable,
    O.UNKNOWN: submitting.unknown,
}

_READING: Mapping[OutcomeKind, Rule] = {
    O.RESULT: reading.result,
    O.NOT_READY: reading.not_ready,
    O.READ_FAILED: reading.ask_status,
    O.RUN_FAILED: reading.run_failed,
    O.RUN_SUCCEEDED: reading.read_again,
    O.REQUEST_NOT_FOUND: reading.not_found,
    O.GONE: reading.gone,
    O.CANCEL: commands.ask_to_cancel,
    O.CANCEL_ASKED: reading.cancel_answered,
    O.CANCEL_TOO_LATE: reading.cancel_answered,
    O.UNAUTHORIZED: common.pause_credential("unauthorized"),
    O.FORBIDDEN: common.pause_credential("forbidden"),
    O.ACCOUNT_NOT_ENABLED: common.pause_credential("not_enabled"),
    O.RATE_LIMITED: common.cool_down,
    O.UNAVAILABLE: common.unavailable,
    O.UNREACHABLE: reading.unreachable,
    O.UNKNOWN: reading.unknown,
    O.STORAGE_FAILED: common.pause_batch("storage"),
    O.STORAGE_AWAY: common.storage_away,
}

_DOWNLOADING: Mapping[OutcomeKind, Rule] = {
    O.ASSET_SAVED: media.asset_settled(AssetState.SAVED),
    O.ASSET_INTERRUPTED: media.asset_interrupted,
    O.ASSET_LINK_DEAD: media.asset_link_dead,
    O.ASSET_REFUSED: media.asset_settled(AssetState.FAILED),
    O.STORAGE_FAILED: common.pause_batch("storage"),
    O.STORAGE_AWAY: common.storage_away,
    # The result is being read once more for fresh links.
    O.RESULT: media.fresh_links,
    O.NOT_READY: media.links_unreadable,
    O.READ_FAILED: media.links_unreadable,
    O.RUN_FAILED: media.links_lost,
    O.RUN_SUCCEEDED: media.links_unreadable,
    O.REQUEST_NOT_FOUND: media.links_lost,
    O.GONE: media.links_lost,
    O.UNAUTHORIZED: common.pause_credential("unauthorized"),
    O.FORBIDDEN: common.pause_credential("forbidden"),
    O.ACCOUNT_NOT_ENABLED: common.pause_credential("not_enabled"),
    O.RATE_LIMITED: common.cool_down,
    O.UNAVAILABLE: common.unavailable,
    O.UNREACHABLE: reading.unreachable,
    O.UNKNOWN: media.links_unreadable,
}

_HELD: Mapping[OutcomeKind, Rule] = {
    O.RESUME: commands.resume,
    O.RETRY: commands.retry,
    O.CANCEL: commands.withdraw,
}
_ENDED: Mapping[OutcomeKind, Rule] = {O.RETRY: commands.retry}

_BY_STATE: Mapping[JobState, Mapping[OutcomeKind, Rule]] = {
    JobState.PENDING: _PENDING,
    JobState.SUBMITTING: _SUBMITTING,
    JobState.QUEUED: _READING,
    JobState.RUNNING: _READING,
    JobState.DOWNLOADING: _DOWNLOADING,
    JobState.SUCCEEDED: {O.RESUME: commands.fetch_again},
    JobState.FAILED: _ENDED,
    JobState.CANCELLED: _ENDED,
    JobState.EXPIRED: _ENDED,
    JobState.HELD: _HELD,
}

#: Every event that a state knows, and its rule.
TABLE: Mapping[tuple[JobState, OutcomeKind], Rule] = {
    (state, kind): rule for state, rules in _BY_STATE.items() for kind, rule in rules.items()
}
