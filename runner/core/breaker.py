"""The breaker: many failures of one kind in a row say something about the batch, not about its rows."""

from __future__ import annotations

from runner.core.types import JobState, Outcome, OutcomeKind, Transition

#: What a pause by the breaker is called.
PAUSE_REASON = "failing_alike"

_REFUSALS = frozenset({OutcomeKind.REJECTED, OutcomeKind.MODEL_NOT_FOUND, OutcomeKind.MODEL_NOT_QUEUEABLE})


def failure_label(outcome: Outcome, transition: Transition) -> str | None:
    """What a failure counts as, so that equal ones can be counted; `None` for what is no failure."""
    if transition.state is not JobState.FAILED:
        return None
    stage = "refused" if outcome.kind in _REFUSALS else "run"
    return f"{stage}: {outcome.error_type or outcome.kind.value}"


def breaks_row(outcome: Outcome, label: str | None) -> bool:
    """Whether `outcome` shows that failures counted under `label` are not everybody's: a submit that was accepted ends
    a row of refused ones, a result ends any."""
    if label is None:
        return False
    return outcome.kind is OutcomeKind.RESULT or (
        outcome.kind is OutcomeKind.ACCEPTED and label.startswith("refused: ")
    )


def trips(alike: int, limit: int) -> bool:
    """Whether `alike` failures in a row are enough; a limit of 0 never is."""
    return 0 < limit <= alike


def sentence(alike: int, label: str, detail: str | None) -> str:
    """Why the batch stands still, for people."""
    stage, _, error_type = label.partition(": ")
    what = "submits in a row were refused" if stage == "refused" else "runs in a row failed"
    return f"{alike} {what} with {error_type}" + (f": {detail}" if detail else "")
