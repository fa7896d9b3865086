"""Faults that the simulator can be told to make, and the markers in a prompt that ask for one.

A fault is counted, never drawn: the same plan and the same calls give the same faults. Most take a *dose*:

* `3`: the first three times. What is counted depends on the fault: the sends of one `Idempotency-Key` (submit
  faults), the reads of one request (read faults), the downloads of one link (media faults), all calls, or all runs.
* `1/10`: every tenth time, counted over everything.
* `always`: every time. `0`: never.

Submit faults of one key follow each other in the order in which `FaultPlan` lists them, so
`deadline_exceeded=1` with `key_busy=1` gives a `504`, then a `409`, then the true answer.

Markers that a prompt can carry, wherever it stands in the body:

* `[fail:TYPE]`: the run ends with that `error_type`, for instance `[fail:provider_error]`.
* `[moderated]`: the run succeeds with a document that holds no media, as some models do.
* `[slow:SECONDS]`: the run takes that long.
* `[never]`: the run never finishes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

_ALWAYS = 2**62
_MARKERS = re.compile(r"\[(fail:(?P<fail>[a-z0-9_]+)|slow:(?P<slow>\d+(?:\.\d+)?)|(?P<flag>moderated|never))\]")


@dataclass(frozen=True, slots=True)
class Dose:
    """How often a fault happens."""

    #: The first so many occurrences of one thing (a key, a request, a link, ...).
    first: int = 0
    #: Every so many occurrences over all things; 0 is never.
    every: int = 0

    @classmethod
    def parse(cls, text: object) -> Dose:
        """Read `3`, `1/10`, `always` or `0`."""
        words = str(text).strip()
        if words == "always":
            return cls(first=_ALWAYS)
        one, slash, every = words.partition("/")
        if slash and one == "1" and every.isascii() and every.isdigit() and int(every) > 0:
            return cls(every=int(every))
        if not slash and one.isascii() and one.isdigit():
            return cls(first=int(one))
        raise ValueError(f"{words!r} is not a dose; write a count (3), one in N (1/10), or always")

    def __str__(self) -> str:
        if self.every:
            return f"1/{self.every}"
        return "always" if self.first >= _ALWAYS else str(self.first)


_NEVER = Dose()


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Every fault with its dose or value; the defaults make none."""

    # Submits, counted by Idempotency-Key.
    #: The connection closes before anything is recorded.
    drop_before_accept: Dose = _NEVER
    #: Bare 500, 502, 504 pages; nothing is recorded.
    submit_500: Dose = _NEVER
    submit_502: Dose = _NEVER
    submit_504: Dose = _NEVER
    #: `200` with an HTML page; nothing is recorded.
    submit_html: Dose = _NEVER
    #: `429 concurrency_limit_exceeded` with the committed-spend headers.
    concurrency_limit: Dose = _NEVER
    #: `429 queue_backlog_full`, whatever waits.
    backlog_full: Dose = _NEVER
    #: Refusals for good, whatever the body: `400`, `413`, and `422` with an entry of `detail[]` for each field.
    bad_request: Dose = _NEVER
    too_large: Dose = _NEVER
    invalid_input: Dose = _NEVER
    #: `403 not_enabled`, of the account and of the model.
    not_enabled: Dose = _NEVER
    not_queueable: Dose = _NEVER
    #: `404 model_not_found` with suggestions.
    model_not_found: Dose = _NEVER
    #: The request is accepted, then the connection closes without an answer.
    drop_after_accept: Dose = _NEVER
    #: The request is accepted and the answer is `504 deadline_exceeded` with `Retry-After: 3`.
    deadline_exceeded: Dose = _NEVER
    #: The request is accepted and its handle arrives cut off.
    submit_cut_json: Dose = _NEVER
    #: `409 concurrency_limit_exceeded` with `Retry-After: 2`: the key is still being admitted.
    key_busy: Dose = _NEVER
    #: `409 invalid_input`: the key belongs to another request.
    key_conflict: Dose = _NEVER

    # Reads of status and result, counted by request.
    read_drop: Dose = _NEVER
    read_500: Dose = _NEVER
    read_502: Dose = _NEVER
    read_504: Dose = _NEVER
    read_html: Dose = _NEVER
    read_cut_json: Dose = _NEVER
    #: `404 request_not_found`.
    request_not_found: Dose = _NEVER

    # Every authenticated call of the contract's routes, counted over all of them.
    unauthorized: Dose = _NEVER
    forbidden: Dose = _NEVER
    #: `429 rate_limited` with `Retry-After: 2`.
    rate_limited: Dose = _NEVER
    #: `503 service_unavailable` with `Retry-After: 2`, and without one.
    unavailable: Dose = _NEVER
    unavailable_bare: Dose = _NEVER

    # Media, counted by link (path without the query).
    #: `403` with an XML body, as an object store answers for a link that has died.
    dead_links: Dose = _NEVER
    media_500: Dose = _NEVER
    media_drop: Dose = _NEVER
    #: `302` to the same file under another name of this machine (`localhost` for `127.0.0.1`, and back).
    media_redirect: Dose = _NEVER
    #: Right bytes under `application/octet-stream`.
    media_wrong_type: Dose = _NEVER
    #: `Content-Length` of the whole, bytes of a part.
    media_truncated: Dose = _NEVER
    media_empty: Dose = _NEVER
    #: `200` with an HTML page.
    media_html: Dose = _NEVER

    # Runs, counted as they are accepted.
    #: The run ends with `fail_type`.
    fail: Dose = _NEVER
    fail_type: str = "provider_error"
    never_finish: Dose = _NEVER
    #: The run succeeds without media.
    moderate: Dose = _NEVER

    # Values.
    #: Runs that the account can pay for; further submits get `402`. `None` is no limit.
    credits: int | None = None
    #: The text of every `Retry-After`, verbatim.
    retry_after: str | None = None
    #: Seconds before each answer.
    slow: float = 0.0
    #: Seconds added to every answer of the media host.
    slow_media: float = 0.0
    #: Each read of a result signs its media links anew, as a Router that renews links would.
    relink: bool = False
    #: Links of a result read for the first time are dead on arrival; with `relink`, a second read mends them.
    dead_first_links: bool = False
    #: Estimates are refused and handles carry none (contract: estimate, while it is rolled out).
    estimate_disabled: bool = False
    #: A cancel that comes too late answers `400`, as older deployments do.
    legacy_cancel: bool = False


#: Order in which the submit faults of one key follow each other.
SUBMIT_FAULTS = (
    "drop_before_accept",
    "submit_500",
    "submit_502",
    "submit_504",
    "submit_html",
    "concurrency_limit",
    "backlog_full",
    "bad_request",
    "too_large",
    "invalid_input",
    "not_enabled",
    "not_queueable",
    "model_not_found",
    "drop_after_accept",
    "deadline_exceeded",
    "submit_cut_json",
    "key_busy",
    "key_conflict",
)
READ_FAULTS = (
    "read_drop",
    "read_500",
    "read_502",
    "read_504",
    "read_html",
    "read_cut_json",
    "request_not_found",
)
CALL_FAULTS = ("unauthorized", "forbidden", "rate_limited", "unavailable", "unavailable_bare")
MEDIA_FAULTS = (
    "dead_links",
    "media_500",
    "media_drop",
    "media_redirect",
    "media_wrong_type",
    "media_truncated",
    "media_empty",
    "media_html",
)
RUN_FAULTS = ("fail", "never_finish", "moderate")

_DOSES = frozenset(SUBMIT_FAULTS + READ_FAULTS + CALL_FAULTS + MEDIA_FAULTS + RUN_FAULTS)
#: Every name that a plan knows, in the order of the documentation.
FAULT_NAMES = tuple(each.name for each in fields(FaultPlan))


def _boolean(value: object) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    try:
        return words[str(value).strip().lower()]
    except KeyError:
        raise ValueError(f"{value!r} is neither true nor false") from None


def _seconds(value: object) -> float:
    number = float(str(value))
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"{value!r} is not a number of seconds")
    return number


def _count(value: object) -> int | None:
    return None if value is None or value == "" else int(str(value))


def _optional_text(value: object) -> str | None:
    return None if value is None else str(value)


_READERS: dict[str, Callable[[object], object]] = {
    "fail_type": str,
    "credits": _count,
    "retry_after": _optional_text,
    "slow": _seconds,
    "slow_media": _seconds,
    "relink": _boolean,
    "dead_first_links": _boolean,
    "estimate_disabled": _boolean,
    "legacy_cancel": _boolean,
}


def _read(name: str, value: object) -> object:
    if name not in FAULT_NAMES:
        raise ValueError(f"unknown fault {name!r}; known are: {', '.join(FAULT_NAMES)}")
    reader = Dose.parse if name in _DOSES else _READERS[name]
    try:
        return reader(value)
    except ValueError as error:
        raise ValueError(f"fault {name!r}: {error}; known are: {', '.join(FAULT_NAMES)}") from None


def with_faults(plan: FaultPlan, changes: Mapping[str, object]) -> FaultPlan:
    """The plan with some faults set; values as in JSON or on a command line."""
    read = {name: _read(name, value) for name, value in changes.items()}
    return replace(plan, **read)  # type: ignore[arg-type]  # the readers hold the types


def parse_faults(texts: Sequence[str]) -> FaultPlan:
    """Read `NAME=VALUE` words; a bad one raises `ValueError` with its name and the list of known ones."""
    changes: dict[str, object] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            # A bare name is the plainest dose: always, or true.
            value = "always" if name in _DOSES else "true"
        changes[name] = value
    return with_faults(FaultPlan(), changes)


def plan_as_json(plan: FaultPlan) -> dict[str, object]:
    """The plan in the form that `with_faults` reads."""
    values = {name: getattr(plan, name) for name in FAULT_NAMES}
    return {name: str(value) if isinstance(value, Dose) else value for name, value in values.items()}


@dataclass(frozen=True, slots=True)
class Markers:
    """What a prompt asks of its own run."""

    fail: str | None = None
    slow: float | None = None
    moderated: bool = False
    never: bool = False


def read_markers(prompt: str) -> Markers:
    """Find the markers in a prompt."""
    markers = Markers()
    if "[" not in prompt:
        return markers
    for found in _MARKERS.finditer(prompt):
        if found["fail"]:
            markers = replace(markers, fail=found["fail"])
        elif found["slow"]:
            markers = replace(markers, slow=float(found["slow"]))
        elif found["flag"] == "moderated":
            markers = replace(markers, moderated=True)
        else:
            markers = replace(markers, never=True)
    return markers


@dataclass(slots=True)
class Injector:
    """Counts occurrences and says which fault, if any, the present one meets."""

    plan: FaultPlan
    _firsts: dict[tuple[str, str], int] = field(default_factory=dict)
    _totals: dict[str, int] = field(default_factory=dict)

    def set_plan(self, plan: FaultPlan) -> None:
        """Change the plan; counting starts anew."""
        self.plan = plan
        self._firsts.clear()
        self._totals.clear()

    def submit(self, key: str) -> str | None:
        """The fault that this send of a key meets."""
        return self._next("submit", SUBMIT_FAULTS, key)

    def read(self, request_id: str) -> str | None:
        """The fault that this read of a request meets."""
        return self._next("read", READ_FAULTS, request_id)

    def call(self) -> str | None:
        """The fault that this call meets, whatever its route."""
        return self._next("call", CALL_FAULTS, "")

    def media(self, path: str) -> str | None:
        """The fault that this download meets."""
        return self._next("media", MEDIA_FAULTS, path)

    def run(self) -> str | None:
        """What the plan makes of the run that is being accepted."""
        return self._next("run", RUN_FAULTS, "")

    def _next(self, group: str, names: Sequence[str], subject: str) -> str | None:
        doses = [(name, getattr(self.plan, name)) for name in names]
        doses = [(name, dose) for name, dose in doses if dose != _NEVER]
        if not doses:
            return None
        total = self._totals[group] = self._totals.get(group, 0) + 1
        place = self._firsts[group, subject] = self._firsts.get((group, subject), 0) + 1
        for name, dose in doses:
            if place <= dose.first:
                return name
            place -= dose.first
        return next((name for name, dose in doses if dose.every and total % dose.every == 0), None)
