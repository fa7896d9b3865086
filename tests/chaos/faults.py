"""What the Router does wrongly, and how often the batch met it."""

from __future__ import annotations

from random import Random

from sqlalchemy import text

from runner.core.types import OutcomeKind
from runner.store.engine import Database

# Each kind of fault comes at every so many calls of its group, so that together they spoil about one call in five, and
# fewer of the submits, which have the fewest tries. None asks for the user: faults that pause a batch, and links that
# are dead for good, have tests of their own.
_EVERY: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("drop_before_accept", "drop_after_accept", "submit_cut_json"), (40, 56)),
    **dict.fromkeys(("submit_500", "submit_502", "submit_504", "submit_html"), (56, 80)),
    **dict.fromkeys(("deadline_exceeded", "key_busy"), (56, 80)),
    **dict.fromkeys(("concurrency_limit", "backlog_full"), (100, 140)),
    **dict.fromkeys(("read_drop", "read_500", "read_502", "read_504", "read_html", "read_cut_json"), (20, 28)),
    "request_not_found": (90, 120),
    **dict.fromkeys(("media_500", "media_drop", "media_truncated"), (10, 14)),
    **dict.fromkeys(("unavailable", "unavailable_bare"), (90, 120)),
    # Everybody waits for two seconds each time.
    "rate_limited": (250, 350),
}
#: Outcomes that no fault is behind.
_USUAL = frozenset(
    {
        OutcomeKind.ADMITTED,
        OutcomeKind.WITHDRAWN,
        OutcomeKind.ACCEPTED,
        OutcomeKind.NOT_READY,
        OutcomeKind.RESULT,
        OutcomeKind.RUN_SUCCEEDED,
        OutcomeKind.ASSET_SAVED,
        OutcomeKind.RESUME,
    }
)
_MET = text("""
SELECT kind, http_status, count(*) AS n FROM event GROUP BY kind, http_status ORDER BY kind, n DESC
""")


def some_faults(random: Random) -> dict[str, object]:
    """Faults in the form that the simulator reads."""
    return {name: f"1/{random.randint(*bounds)}" for name, bounds in _EVERY.items()}


def no_faults() -> dict[str, object]:
    """The same names, never again."""
    return dict.fromkeys(_EVERY, "0")


def met_faults(database: Database) -> dict[str, int]:
    """How often the rows' own histories tell of each kind of fault. What a killed worker met, nobody can tell."""
    with database.read() as connection:
        found = connection.execute(_MET).all()
    return {_words(kind, status): count for kind, status, count in found if kind not in _USUAL}


def _words(kind: str, status: int | None) -> str:
    return f"{kind.replace('_', ' ')}, {f'HTTP {status}' if status else 'no whole answer'}"
