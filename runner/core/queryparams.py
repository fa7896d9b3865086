"""The query parameters of a submit: who is to serve the model, and how strictly its body is read.

Names and meanings are the contract's (`ModelProvider`, `StrictMode`, `RejectUnknownFields`). They are part of what an
idempotency key stands for, so a job keeps its own from the start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final
from urllib.parse import urlencode

from runner.core.jsontext import JSON, clip

MODEL_PROVIDER: Final = "model_provider"
STRICT_MODE: Final = "strict_mode"
REJECT_UNKNOWN_FIELDS: Final = "reject_unknown_fields"
#: Columns and keys of a manifest that set a row's own.
QUERY_PARAMETERS: Final = (MODEL_PROVIDER, STRICT_MODE, REJECT_UNKNOWN_FIELDS)

_PROVIDER: Final = re.compile(r"[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*")
_FLAGS: Final = {"true": True, "false": False}


class ParameterFault(ValueError):
    """A value that the parameter cannot have; the text says why."""


@dataclass(frozen=True, slots=True)
class QueryParameters:
    """What is said beside a body; `None` leaves the Router's default."""

    model_provider: str | None = None
    strict_mode: bool | None = None
    reject_unknown_fields: bool | None = None

    def __post_init__(self) -> None:
        if self.model_provider is not None and not _PROVIDER.fullmatch(self.model_provider):
            raise ParameterFault(f"{clip(self.model_provider)!r} is no provider's name, which looks like `fal`")

    def over(self, others: QueryParameters) -> QueryParameters:
        """These where they say something, `others` where they do not."""
        return QueryParameters(
            **{
                field.name: getattr(others if getattr(self, field.name) is None else self, field.name)
                for field in fields(self)
            }
        )

    @property
    def query(self) -> str:
        """As it is sent, and kept: empty, or `name=value` pairs in the contract's order joined by `&`."""
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        return urlencode({name: _spelt(value) for name, value in said.items() if value is not None})


#: All of it is the Router's own choice.
NOTHING_SAID: Final = QueryParameters()


def _spelt(value: str | bool) -> str:
    return value if isinstance(value, str) else str(value).lower()


def read_parameters(values: Mapping[str, JSON]) -> tuple[QueryParameters, list[tuple[str, str]]]:
    """The parameters of a row, and (name, fault) of those that cannot be right.

    A value is a text as cells have it, a JSON truth value or null; blank and null leave the batch's own.
    """
    read: dict[str, object] = {}
    faults = []
    for name, value in values.items():
        try:
            read[name] = _provider(value) if name == MODEL_PROVIDER else _flag(value)
        except ParameterFault as fault:
            faults.append((name, str(fault)))
    return QueryParameters(**read), faults  # type: ignore[arg-type]  # each is read to its own type above


def _provider(value: JSON) -> str | None:
    if value is None or (type(value) is str and not value.strip()):
        return None
    if type(value) is not str:
        raise ParameterFault("is not a text")
    return QueryParameters(model_provider=value.strip()).model_provider


def _flag(value: JSON) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    word = value.strip().lower() if type(value) is str else None
    if word == "":
        return None
    if word not in _FLAGS:
        raise ParameterFault("is neither true nor false")
    return _FLAGS[word]
