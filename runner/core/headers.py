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


def no_prompt(names: list[str]) -> str:
    """What to do where no column gives the prompt: rename the one that is most like it, or make it by a template."""
    close = _closest("prompt", names)
    if close is not None:
        return f"the nearest is `{close}`: rename it to `prompt`"
    return f"there are: {_list(names)}; --template FILE makes the prompt from them"


def no_template_column(wanted: str, names: list[str]) -> str:
    """What to do where a template names a column that is not there; mostly it is the template that is misspelt."""
    close = _closest(wanted, names)
    if close is not None:
        return f"the nearest is `{close}`: write {{{{{close}}}}} in the template"
    return f"there are: {_list(names)}"


def _closest(wanted: str, names: list[str]) -> str | None:
    lowered = {name.lower(): name for name in names}
    close = get_close_matches(wanted.lower(), lowered, n=1)
    return lowered[close[0]] if close else None


def _list(names: list[str]) -> str:
    return ", ".join(clip(name) for name in names)


def case_hints(names: list[str], fields: InputFields, model: str) -> list[str]:
    """Columns kept as metadata that differ only in case from one with a meaning."""
    meant = {name.lower(): name for name in (*fields, "id", "model")}
    return [
        f"column `{name}` is kept as metadata; `{meant[name.lower()]}` would have a meaning for {model}"
        for name in names
        if name.lower() in meant and name not in meant.values() and meant[name.lower()] not in names
    ]
