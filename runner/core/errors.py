"""What can go wrong, as values that carry data and help.

BatchError                    everything a user can mend; shown without a traceback
├── UsageError                wrong flags, a manifest that cannot be read (exit status 2)
│   └── ManifestError         problems of a manifest, each with its place
├── SettingsError             a setting that cannot be right (exit status 2)
├── NotFound                  no such batch or job (exit status 2)
├── CredentialChanged         the batch belongs to another API key or Router (exit status 3)
├── StoreError                the database refuses to work (exit status 3)
└── DiskError                 the media cannot be written (exit status 3)
ImpossibleEvent               an event that cannot happen in a state: a fault of the program
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class BatchError(Exception):
    """Something a user can mend.

    `message` says what is wrong and where; `advice` is what to do or type next.
    """

    exit_code = 2

    def __init__(self, message: str, *, advice: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice


class UsageError(BatchError):
    """Wrong flags or arguments."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a manifest, at a place people can find in an editor."""

    #: Physical line, from 1; `None` when the fault is of the file as a whole.
    line: int | None
    message: str
    #: Column (CSV) or key (JSONL) spoken of.
    field: str | None = None
    #: Byte within the line, from 1.
    byte: int | None = None
    advice: str | None = None

    def __str__(self) -> str:
        place = [] if self.line is None else [f"line {self.line}"]
        if self.byte is not None:
            place.append(f"byte {self.byte}")
        if self.field is not None:
            place.append(f"`{self.field}`")
        text = f"{', '.join(place)}: {self.message}" if place else self.message
        return f"{text} ({self.advice})" if self.advice else text


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A piece of a physical line; `length` characters from `start` are what the problem is about, 0 for nothing."""

    line: int
    text: str
    start: int
    length: int


class ManifestError(UsageError):
    """A manifest that cannot be used as it is: nothing of it was sent.

    `problems` are the ones to show, in the order of the file; `total` counts all of them. `excerpts` are their lines,
    where somebody looks at a terminal.
    """

    def __init__(
        self,
        path: str,
        problems: Sequence[Problem],
        total: int,
        *,
        advice: str | None = None,
        excerpts: Sequence[Excerpt | None] = (),
    ) -> None:
        noun = "problem" if total == 1 else "problems"
        super().__init__(f"{path}: {total:,} {noun}, nothing was sent", advice=advice)
        self.path = path
        self.problems = tuple(problems)
        self.total = total
        self.excerpts = tuple(excerpts)


class SettingsError(BatchError):
    """A setting that cannot be right."""


class Interrupted(BatchError):
    """The user stopped the command before anything was sent."""

    exit_code = 130


class NotFound(BatchError):
    """No such batch or job."""


class CredentialChanged(BatchError):
    """The batch was begun under another API key or at another Router."""

    exit_code = 3


class StoreError(BatchError):
    """The database refuses to work. `lasting` when waiting will not help, such as on a full disk."""

    exit_code = 3

    def __init__(self, message: str, *, advice: str | None = None, lasting: bool = False) -> None:
        super().__init__(message, advice=advice)
        self.lasting = lasting


class DiskError(BatchError):
    """The media cannot be written. `passing` when waiting may help, such as where an object store does not answer."""

    exit_code = 3

    def __init__(self, message: str, *, advice: str | None = None, passing: bool = False) -> None:
        super().__init__(message, advice=advice)
        self.passing = passing


class ImpossibleEvent(Exception):
    """An event that cannot happen in a state; raised by the lifecycle, naming both."""

    def __init__(self, state: str, event: str) -> None:
        super().__init__(f"a job that is {state} cannot meet the event {event}")
        self.state = state
        self.event = event
