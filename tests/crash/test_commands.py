"""Deaths that only some commands can die: in a faulty manifest, in a second death, in a user's later commands."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from sqlalchemy import text

from tests.acceptance.harness import Ended
from tests.crash.beds import Ward
from tests.crash.boundaries import ELSEWHERE, all_crossings
from tests.crash.cases import IN_FLIGHT, MANIFEST, OPTIONS, ROWS, Bed, Case, Story
from tests.crash.ends import End, look

pytestmark = pytest.mark.acceptance

BEFORE, AFTER = "before commit", "after commit"
#: Of the one row that has failed, not of the one that was cancelled.
RETRY = ("retry", "last", "--state", "failed", "--yes")


def stories(tell: Callable[..., None], *details: str, chaos: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    """Parametrises by deaths at every boundary that has one of `details`, on both engines. Those on the broker are left
    for those who ask, since each takes several commands, and so are those at one of `chaos`."""
    parameters = []
    for engine in ("embedded", "broker"):
        for boundary, detail in sorted(all_crossings()):
            if detail in (*details, *chaos):
                marks = [pytest.mark.chaos] if engine == "broker" or detail in chaos else []
                story = Story(engine, tell, (boundary, detail))
                parameters.append(pytest.param(story, marks=marks, id=str(story)))
    return pytest.mark.parametrize("story", parameters)


def deaths_told_here() -> set[tuple[str, ...]]:
    """The boundaries that any story of this module dies at unasked."""
    marks = [mark for value in globals().values() for mark in getattr(value, "pytestmark", ())]
    sets = [one for mark in marks if mark.args[:1] == ("story",) for one in mark.args[1]]
    return {one.values[0].arguments for one in sets if pytest.mark.chaos.mark not in [m.mark for m in one.marks]}


def test_every_boundary_that_no_clean_run_crosses_is_died_at_here() -> None:
    elsewhere = {(boundary, detail) for boundary, detail in all_crossings() if detail in ELSEWHERE}
    assert elsewhere - deaths_told_here() == set()


def run(bed: Bed) -> Ended:
    """`run`, which works by itself where no worker answers."""
    return bed.start("run", *OPTIONS).wait()


def die(bed: Bed, boundary: str, detail: str, *arguments: str) -> None:
    """`run`, or the command with these arguments, killed at a boundary."""
    arguments = arguments or ("run", *OPTIONS)
    died = bed.start(*arguments, kill=Case(arguments[0], boundary, detail)).wait()
    assert died.code == -signal.SIGKILL, died.err


def count(bed: Bed, query: str) -> int:
    """The one number that a question to the database has for an answer."""
    with bed.database.read() as connection:
        return int(connection.execute(text(query)).scalar_one())


def assert_as_clean(end: End, clean: End) -> None:
    """Nothing shows that anything happened."""
    assert end.faults == []
    assert end.rows == clean.rows


def read_half_a_manifest_twice(bed: Bed, clean: End, boundary: str, transaction: str) -> None:
    die(bed, AFTER, "write rows")
    assert count(bed, "SELECT count(*) FROM job") == len(ROWS)
    die(bed, boundary, transaction)
    ended = run(bed)
    assert_as_clean(look(bed.database, bed.router, ended), clean)


@stories(read_half_a_manifest_twice, "discard rows")
def test_a_manifest_that_was_half_read_is_read_anew_though_the_second_reading_dies_as_it_clears_away(
    story: Story, ward: Ward
) -> None:
    ward.hear(story)


def read_a_faulty_manifest(bed: Bed, clean: End, boundary: str, transaction: str) -> None:
    bed.write(MANIFEST, ROWS, after='{"id": "cut off\n')
    die(bed, boundary, transaction)
    again = run(bed)
    assert again.code == 2, again.err
    assert count(bed, "SELECT count(*) FROM batch") == 0
    assert count(bed, "SELECT count(*) FROM job") == 0

    bed.write(MANIFEST, ROWS)
    ended = run(bed)
    assert_as_clean(look(bed.database, bed.router, ended), clean)


@stories(read_a_faulty_manifest, "discard batch", chaos=("discard rows",))
def test_a_faulty_manifest_leaves_nothing_in_the_way_of_the_mended_one(story: Story, ward: Ward) -> None:
    ward.hear(story)


def edit_twice(bed: Bed, clean: End, boundary: str, transaction: str) -> None:
    assert run(bed).code == 1
    first, second, *rest = ROWS
    bed.write(MANIFEST, (*rest, {**second, "body": {**second["body"], "max_tokens": 65}}, {**first, "id": "new"}))
    die(bed, boundary, transaction)
    ended = run(bed)

    # What is new or changed was paid for once, whether the edit was made before the death or is made after it.
    assert ended.code == 1, ended.err
    ledger = bed.router.ledger()
    assert len(ledger["by_key"]) == len(ROWS) + 2
    assert {account["runs"] for account in ledger["by_key"].values()} == {1}
    assert count(bed, "SELECT count(*) FROM batch") == 2
    assert count(bed, "SELECT count(*) FROM batch WHERE total IS NULL") == 0
    assert count(bed, "SELECT total FROM batch WHERE name = 'rows'") == len(ROWS)
    assert count(bed, "SELECT count(*) FROM job j JOIN batch b ON b.id = j.batch_id WHERE b.name = 'rows@1'") == 2
    assert count(bed, "SELECT count(*) FROM job WHERE state NOT IN ('succeeded', 'failed')") == 0


@stories(edit_twice, "adopt manifest")
def test_an_edit_that_dies_is_made_once_by_the_same_command(story: Story, ward: Ward) -> None:
    ward.hear(story)


def edit_what_was_not_sent_twice(bed: Bed, clean: End, boundary: str, transaction: str) -> None:
    die(bed, AFTER, "complete batch")
    bed.write(MANIFEST, ROWS[1:])
    die(bed, boundary, transaction)
    ended = run(bed)

    assert ended.code == 1, ended.err
    assert len(bed.router.ledger()["by_key"]) == len(ROWS) - 1
    assert count(bed, "SELECT count(*) FROM job WHERE state = 'cancelled' AND charge = 'unbilled'") == 1
    assert count(bed, "SELECT count(*) FROM batch WHERE state = 'finished'") == 2


@stories(edit_what_was_not_sent_twice, "adopt manifest")
def test_rows_that_left_a_manifest_end_unsent_though_the_edit_died(story: Story, ward: Ward) -> None:
    ward.hear(story)


def resume_twice(bed: Bed, clean: End, boundary: str, transaction: str) -> None:
    die(bed, "after call", "submit")
    hold_what_is_unsure(bed)
    die(bed, boundary, transaction, "resume", "last")
    ended = bed.start("resume", "last", "--max-in-flight", IN_FLIGHT).wait()
    assert_as_clean(look(bed.database, bed.router, ended), clean)


def hold_what_is_unsure(bed: Bed) -> None:
    """As if no answer had come in six sends, so that there is something for the command to take back."""
    held = text("""
        UPDATE job SET state = 'held', step = NULL, reason = 'outcome_unknown', claim_token = NULL, claim_owner = NULL,
          claim_until = NULL, wake_at = NULL
        WHERE state = 'submitting' AND first_sent_at IS NOT NULL
    """)
    with bed.database.write("a test's own") as connection:
        assert connection.execute(held).rowcount > 0


@stories(resume_twice, "command", chaos=("unblock", "set clock right", "resume"))
def test_a_resume_that_dies_is_made_good_by_the_next(story: Story, ward: Ward) -> None:
    ward.hear(story)


def retry_twice(bed: Bed, clean: End, boundary: str, transaction: str) -> None:
    assert run(bed).code == 1
    die(bed, boundary, transaction, "retry", "last", "--state", "failed", "--yes")
    decided = (boundary, transaction) != (BEFORE, "command")
    assert count(bed, "SELECT max(run) FROM job") == (2 if decided else 1)
    assert len(bed.router.ledger()["by_key"]) == len(ROWS)

    # What it had decided on is owed; what it had not is asked for again.
    command = ("resume", "last") if decided else ("retry", "last", "--state", "failed", "--yes")
    ended = bed.start(*command).wait()

    assert ended.code == 1, ended.err
    ledger = bed.router.ledger()
    assert len(ledger["by_key"]) == len(ROWS) + 1
    assert {account["runs"] for account in ledger["by_key"].values()} == {1}
    assert count(bed, "SELECT count(*) FROM job WHERE run = 2 AND state = 'failed'") == 1
    assert count(bed, "SELECT count(*) FROM job WHERE wake_at IS NOT NULL OR claim_token IS NOT NULL") == 0


@stories(retry_twice, "command", chaos=("unblock",))
def test_a_retry_that_dies_has_decided_on_one_new_run_or_on_none(story: Story, ward: Ward) -> None:
    ward.hear(story)


def pause_twice(bed: Bed, clean: End, boundary: str, transaction: str) -> None:
    die(bed, AFTER, "complete batch")
    die(bed, boundary, transaction, "pause", "last")
    paused = bed.start("pause", "last").wait()
    assert paused.code == 0, paused.err
    assert count(bed, "SELECT count(*) FROM batch WHERE state = 'paused' AND pause_reason = 'user'") == 1
    assert bed.router.runs() == 0
    ended = run(bed)
    assert_as_clean(look(bed.database, bed.router, ended), clean)


@stories(pause_twice, "pause")
def test_a_pause_that_dies_is_made_good_by_the_next(story: Story, ward: Ward) -> None:
    ward.hear(story)


def cancel_twice(bed: Bed, clean: End, boundary: str, transaction: str) -> None:
    die(bed, "after call", "submit")
    die(bed, boundary, transaction, "cancel", "last", "--yes")
    sent = bed.router.runs()
    ended = bed.start("cancel", "last", "--yes").wait()
    assert ended.code == 1, ended.err
    assert count(bed, "SELECT count(*) FROM batch WHERE state = 'finished'") == 1
    assert count(bed, "SELECT count(*) FROM job WHERE state NOT IN ('cancelled', 'succeeded', 'failed')") == 0
    # Nothing was sent that had not been sent before; what may have been charged is not shown as free.
    assert bed.router.runs() == sent
    assert count(bed, "SELECT count(*) FROM job WHERE charge <> 'unbilled'") >= sent


@stories(cancel_twice, "cancel batch", "cancel jobs")
def test_a_cancel_that_dies_is_made_good_by_the_next(story: Story, ward: Ward) -> None:
    ward.hear(story)
