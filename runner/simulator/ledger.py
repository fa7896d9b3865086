"""Counts what was asked, run and charged, for tests that must know the truth about money."""

from __future__ import annotations

from dataclasses import dataclass, field

CALLS = ("submit", "result", "status", "cancel", "media", "catalog")


@dataclass(slots=True)
class KeyAccount:
    """What one `Idempotency-Key` did; keys of all API keys that share its text together."""

    model: str
    runs: int = 0
    billed: int = 0
    sends: int = 0
    request_ids: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        """For the ledger's answer."""
        return {
            "runs": self.runs,
            "billed": self.billed,
            "sends": self.sends,
            "model": self.model,
            "request_ids": list(self.request_ids),
        }


@dataclass(slots=True)
class Ledger:
    """The running totals."""

    #: Requests that were accepted.
    runs: int = 0
    #: Of those, the ones that were charged.
    billed: int = 0
    by_key: dict[str, KeyAccount] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CALLS, 0))
    #: Reads of a request before the time that its last `Retry-After` named.
    early_polls: int = 0
    #: Downloads that carried the caller's API key.
    credentials_leaked: int = 0
    #: Most requests that were waiting or running at one time.
    in_flight_peak: int = 0

    def account(self, key: str, model: str) -> KeyAccount:
        """The account of a key, opened at its first use."""
        account = self.by_key.get(key)
        if account is None:
            account = self.by_key[key] = KeyAccount(model)
        return account

    def accepted(self, key: str, model: str, request_id: str) -> None:
        """A new request was accepted under a key."""
        self.runs += 1
        account = self.account(key, model)
        account.runs += 1
        account.request_ids.append(request_id)

    def charged(self, key: str, model: str) -> None:
        """A run was charged."""
        self.billed += 1
        self.account(key, model).billed += 1

    def as_json(self, *, running: int, queued: int, summary: bool) -> dict[str, object]:
        """The whole ledger, or only its totals."""
        totals: dict[str, object] = {"runs": self.runs, "billed": self.billed}
        if not summary:
            totals["by_key"] = {key: account.as_json() for key, account in self.by_key.items()}
        return totals | {
            "calls": dict(self.calls),
            "early_polls": self.early_polls,
            "credentials_leaked": self.credentials_leaked,
            "in_flight_peak": self.in_flight_peak,
            "running": running,
            "queued": queued,
        }
