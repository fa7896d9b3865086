"""How the contract words the outcomes of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.responses import Response

from runner.simulator.answers import InvalidBody, Refusal, error_answer, invalid_answer
from runner.simulator.catalog import suggestions
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


_WORDS: Mapping[str, tuple[int, str, str]] = {
    "bad_request": (400, "invalid_input", "The body is not a JSON document."),
    "too_large": (413, "invalid_input", "The body is larger than 10485760 bytes."),
    "not_enabled": (403, "not_enabled", "Comfy Router is not enabled for this workspace."),
    "not_queueable": (403, "not_enabled", "{model} answers with bytes and cannot be queued; run it synchronously."),
}
#: Faults that refuse a submit for good, before anything is recorded.
REFUSALS = frozenset({*_WORDS, "invalid_input", "model_not_found"})


#: A `422` as it is worded; each entry keeps its own type and context.
_ENTRIES: Sequence[Problem] = (
    {
        "loc": ["body", "width"],
        "msg": "Input should be less than or equal to 4096",
        "type": "less_than_equal",
        "ctx": {"le": 4096},
        "input": 9000,
    },
    {"loc": ["body", "seed"], "msg": "Input should be a valid integer", "type": "int_type", "input": "seven"},
)


def refusal(fault: str, model_id: str) -> Refusal | InvalidBody:
    """The refusal that a fault of `REFUSALS` stands for."""
    if fault == "invalid_input":
        return InvalidBody(_ENTRIES)
    if fault == "model_not_found":
        return no_model(model_id)
    status, error_type, detail = _WORDS[fault]
    return Refusal(status, error_type, detail.format(model=model_id))


def no_model(model_id: str) -> Refusal:
    """Contract: `model_not_found`, with ids that are nearly this one."""
    close = [other for other in suggestions(model_id) if other != model_id]
    hint = f" Did you mean {', '.join(close)}?" if close else ""
    return Refusal(404, "model_not_found", f"No model has the id {model_id!r}.{hint}")


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
