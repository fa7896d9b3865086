"""What the Router calls its failures."""

from __future__ import annotations

from enum import StrEnum


class RouterError(StrEnum):
    """The contract's closed list of `error_type` as of 2026-11; others arrive verbatim as strings."""

    INVALID_INPUT = "invalid_input"
    CONTENT_POLICY_VIOLATION = "content_policy_violation"
    PROVIDER_ERROR = "provider_error"
    PROVIDER_TIMEOUT = "provider_timeout"
    INSUFFICIENT_CREDITS = "insufficient_credits"
    MODEL_NOT_FOUND = "model_not_found"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    CONCURRENCY_LIMIT_EXCEEDED = "concurrency_limit_exceeded"
    CLIENT_DISCONNECTED = "client_disconnected"
    INTERNAL_ERROR = "internal_error"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    NOT_ENABLED = "not_enabled"
    SERVICE_UNAVAILABLE = "service_unavailable"
    RATE_LIMITED = "rate_limited"
    CANCELLED = "cancelled"
    QUEUE_TIMEOUT = "queue_timeout"
    REQUEST_NOT_FOUND = "request_not_found"
    QUEUE_BACKLOG_FULL = "queue_backlog_full"
