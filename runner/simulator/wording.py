"""How the contract words the outcomes of a run."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from runner.simulator.answers import Refusal, error_answer, invalid_answer
from runner.simulator.check import Problem
from runner.simulator.runs import Run

#: HTTP status and wording under which the result read returns a run's failure.
_FAILURES: Mapping[str, tuple[int, str]] = {
    "content_policy_violation": (400, "The provider refused the request on content-policy grounds."),
    "provider_error": (502, "The provider reported a failure of its own."),
    "provider_timeout": (504, "The provider did not answer within its deadline."),
    "deadline_exceeded": (504, "Comfy stopped waiting for the provider."),
    "queue_timeout": (504, "The request waited too long and never started."),
    "cancelled": (409, "The request was cancelled."),
    "internal_error": (500, "Router failed."),
    "insufficient_credits": (402, "The workspace has not enough credits."),
    "service_unavailable": (503, "A service that Router depends on is unavailable."),
}


def key_conflict() -> Refusal:
    """Contract: `RouterIdempotencyConflict`, the case that waiting does not mend."""
    return Refusal(409, "invalid_input", "This Idempotency-Key was used for a different request.")


def backlog_full() -> Refusal:
    """Contract: `queue_backlog_full`."""
    return Refusal(429, "queue_backlog_full", "Too many of your requests are waiting to run.")


def urls_of(run: Run) -> dict[str, object]:
    """Contract: `RouterQueueUrls`."""
    base = f"{run.origin}/v2/models/{run.model}/requests/{run.id}"
    return {"status_url": f"{base}/status", "response_url": base, "cancel_url": f"{base}/cancel"}


def failure_answer(run: Run, error_type: str) -> Response:
    """A run's own failure, as the result read returns it."""
    if error_type == "invalid_input":
        problem: Problem = {
            "loc": ["body", "prompt"],
            "msg": "The provider does not accept this prompt",
            "type": "value_error",
            "input": run.given.prompt,
        }
        return invalid_answer([problem])
    status, detail = _FAILURES.get(error_type, (500, f"The run ended with {error_type}."))
    if error_type == "content_policy_violation":
        headers = [("X-Comfy-Upstream-Status", "400"), ("X-Comfy-Refusal-Subject", "input_text")]
        return error_answer(status, error_type, detail, headers, refusal_subject="input_text")
    headers = [("X-Comfy-Upstream-Status", "500")] if error_type == "provider_error" else []
    return error_answer(status, error_type, detail, headers)
