"""Failures alike in a row."""

from __future__ import annotations

import pytest

from runner.core.breaker import breaks_row, failure_label, sentence, trips
from runner.core.types import Charge, JobState, Outcome, OutcomeKind, Transition

FAILED = Transition(JobState.FAILED, None, Charge.UNBILLED)


def label(kind: OutcomeKind, error_type: str | None = "invalid_input") -> str | None:
    return failure_label(Outcome(kind, error_type=error_type), FAILED)


def test_refusals_and_failed_runs_of_one_kind_count_apart() -> None:
    assert label(OutcomeKind.REJECTED) == "refused: invalid_input"
    assert label(OutcomeKind.RUN_FAILED) == "run: invalid_input"
    assert label(OutcomeKind.MODEL_NOT_FOUND, None) == "refused: model_not_found"


@pytest.mark.parametrize("state", [state for state in JobState if state is not JobState.FAILED])
def test_only_a_failed_job_counts(state: JobState) -> None:
    transition = Transition(state, None, Charge.UNBILLED)
    assert failure_label(Outcome(OutcomeKind.RUN_FAILED), transition) is None


@pytest.mark.parametrize(
    ("kind", "counted", "ends"),
    [
        (OutcomeKind.RESULT, "refused: invalid_input", True),
        (OutcomeKind.RESULT, "run: provider_error", True),
        (OutcomeKind.ACCEPTED, "refused: invalid_input", True),
        # An accepted submit says nothing of runs.
        (OutcomeKind.ACCEPTED, "run: provider_error", False),
        (OutcomeKind.NOT_READY, "run: provider_error", False),
        (OutcomeKind.RESULT, None, False),
    ],
)
def test_what_ends_a_row_of_failures(kind: OutcomeKind, counted: str | None, ends: bool) -> None:
    assert breaks_row(Outcome(kind), counted) is ends


@pytest.mark.parametrize(("alike", "limit", "stops"), [(9, 10, False), (10, 10, True), (11, 10, True), (99, 0, False)])
def test_the_limit_trips_it_and_a_limit_of_nought_never_does(alike: int, limit: int, stops: bool) -> None:
    assert trips(alike, limit) is stops


def test_the_reason_is_a_sentence_for_people() -> None:
    said = sentence(10, "refused: invalid_input", "width is too large")
    assert said == "10 submits in a row were refused with invalid_input: width is too large"
    assert sentence(10, "run: provider_error", None) == "10 runs in a row failed with provider_error"
