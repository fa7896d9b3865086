"""A CSV's header against what is looked for in it."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from runner.core.bodies import BODY_PREFIX
from runner.core.inputs import InputFields
from runner.core.jsontext import clip

_GIVES_PROMPT: Final = frozenset({"prompt", "body.prompt", "body.contents", "contents"})


def gives_prompt(column: str) -> bool:
    """Whether the prompt may come from the column; what a row has in it is seen when it is read."""
    name = column.rpartition(":")[0] if column.startswith(BODY_PREFIX) and ":" in column else column
    return name in _GIVES_PROMPT


def nearest(wanted: str, names: list[str]) -> str:
    """What to do where a column is missing: the name that is most like it, or all there are."""
    lowered = {name.lower(): name for name in names}
    if close := get_close_matches(wanted.lower(), lowered, n=1):
        return f"the nearest is `{lowered[close[0]]}`: rename it to `{wanted}`"
    return f"there are: {', '.join(clip(name) for name in names)}"


def case_hints(names: list[str], fields: InputFields, model: str) -> list[str]:
    """Columns kept as metadata that differ only in case from one with a meaning."""
    meant = {name.lower(): name for name in (*fields, "id", "model")}
    return [
        f"column `{name}` is kept as metadata; `{meant[name.lower()]}` would have a meaning for {model}"
        for name in names
        if name.lower() in meant and name not in meant.values() and meant[name.lower()] not in names
    ]
