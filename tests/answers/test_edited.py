"""Running an edited manifest: what is new or changed is paid for, and nothing else."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable

from runner.cli.context import open_context
from tests.answers.bench import MODEL, Bench

Start = Callable[..., Bench]
BEFORE = "id,prompt,series\nfox,a fox,animals\nowl,an owl,animals\ncat,a cat,animals\n"
AFTER = "id,prompt,series\nbee,a bee,insects\nowl,a grey owl,animals\nfox,a fox,mammals\n"


def ended(bench: Bench, content: str = BEFORE) -> None:
    bench.submit(content)
    bench.work()


class TestAnEditedManifest:
    def test_it_says_what_changed_and_how_many_paid_runs_that_is(self, start: Start) -> None:
        bench = start()
        ended(bench)
        told = bench.submit(AFTER)
        assert told.code == 0
        assert "The manifest of prompts has changed: 1 new, 1 changed, 1 removed, 1 unchanged rows: 2 paid runs." in (
            told.err
        )
        assert "stays on record as prompts@1" in told.err

    def test_only_new_and_changed_rows_are_sent_and_billed(self, start: Start) -> None:
        bench = start()
        ended(bench)
        bench.submit(AFTER)
        bench.work()
        assert bench.router.ledger()["billed"] == 5
        _, status = bench.status()
        assert (status["name"], status["state"], status["jobs"]["succeeded"]) == ("prompts", "finished", 3)
        # Files are counted with the batch that their rows belong to now.
        assert status["assets"]["saved"] == 3
        assert bench.cli("status", "prompts@1", "--json").document["assets"]["saved"] == 2

    def test_the_export_has_the_edited_rows_in_their_order_with_the_media_of_before(self, start: Start) -> None:
        bench = start()
        ended(bench)
        bench.submit(AFTER)
        bench.work()
        bench.cli("export", "prompts", "-o", "out.csv")
        rows = exported(bench, "out.csv")
        assert [(row["id"], row["series"], row["row"]) for row in rows] == [
            ("bee", "insects", "1"),
            ("owl", "animals", "2"),
            ("fox", "mammals", "3"),
        ]
        paths = [row["asset_paths"].rpartition("/")[2] for row in rows]
        assert paths == ["prompts-000001-bee-1.png", "prompts-000002-owl-1~2.png", "prompts-000001-fox-1.png"]
        bench.cli("export", "prompts@1", "-o", "before.csv")
        kept = exported(bench, "before.csv")
        assert [(row["id"], row["state"]) for row in kept] == [("owl", "succeeded"), ("cat", "succeeded")]

    def test_the_same_again_sends_nothing(self, start: Start) -> None:
        bench = start()
        ended(bench)
        bench.submit(AFTER)
        bench.work()
        told = bench.submit(AFTER)
        bench.work()
        assert "is there already" in told.err
        assert bench.router.ledger()["billed"] == 5

    def test_the_first_manifest_again_is_an_edit_like_any_other(self, start: Start) -> None:
        bench = start()
        ended(bench)
        bench.submit(AFTER)
        bench.work()
        assert "2 new, 1 changed, 1 removed" not in bench.submit(BEFORE).err
        bench.work()
        # The cat that was paid for left with its row: its record stands in prompts@1, and the row is a new one now.
        assert bench.router.ledger()["billed"] == 7

    def test_what_waited_and_was_removed_is_never_sent(self, start: Start) -> None:
        bench = start()
        bench.submit(BEFORE)
        bench.submit("id,prompt,series\nfox,a fox,animals\n")
        bench.work()
        assert bench.router.ledger()["billed"] == 1

    def test_a_request_under_way_of_a_removed_row_is_asked_to_stop(self, start: Start) -> None:
        bench = start(duration=3600.0)
        bench.submit(BEFORE)
        bench.work(10)
        told = bench.submit("id,prompt,series\nfox,a fox,animals\n")
        assert "2 requests of them at the Router are asked to stop; each may still be billed." in told.err
        bench.work()
        assert bench.cli("status", "prompts@1").code in {0, 1}
        assert bench.status()[1]["jobs"]["succeeded"] == 1

    def test_other_columns_alone_cost_nothing(self, start: Start) -> None:
        bench = start()
        ended(bench)
        assert "3 unchanged rows: nothing to pay for" in bench.submit(BEFORE.replace("animals", "beasts")).err
        bench.work()
        assert bench.router.ledger()["billed"] == 3

    def test_a_limit_counts_what_is_new_and_refuses_before_anything_changes(self, start: Start) -> None:
        bench = start()
        ended(bench)
        more = BEFORE + "".join(f"more-{n},a bee {n},insects\n" for n in range(20))
        told = bench.submit(more, "--max-cost", "0.05")
        assert (told.code, "more than --max-cost" in told.err) == (2, True)
        assert bench.status()[1]["jobs"]["total"] == 3
        assert bench.submit(BEFORE).code == 0

    def test_another_manifest_of_the_same_name_is_refused(self, start: Start) -> None:
        bench = start()
        ended(bench)
        told = bench.submit("id,prompt\nelm,an elm\n")
        assert (told.code, "no row of it is in this manifest" in told.err) == (2, True)
        assert "--new" in told.err

    def test_problems_of_the_edited_manifest_leave_the_batch_as_it_was(self, start: Start) -> None:
        bench = start()
        ended(bench)
        assert bench.submit(AFTER + "bee,once more,insects\n").code == 2
        assert bench.status()[1]["jobs"]["succeeded"] == 3

    def test_another_default_model_changes_every_row_that_names_none(self, start: Start) -> None:
        bench = start()
        ended(bench)
        assert "0 new, 3 changed, 0 removed, 0 unchanged rows: 3 paid runs" in (
            bench.submit(BEFORE, model="bfl/flux-2-flex").err
        )

    def test_a_batch_that_is_being_cancelled_takes_no_other_rows(self, start: Start) -> None:
        bench = start(duration=3600.0)
        bench.submit(BEFORE)
        bench.work(10)
        cancel_at_once(bench)
        told = bench.submit(AFTER)
        assert (told.code, "is being cancelled" in told.err) == (2, True)

    def test_another_folder_is_refused(self, start: Start) -> None:
        bench = start()
        ended(bench)
        assert bench.submit(AFTER, "--output", "elsewhere").code == 2
        assert MODEL in bench.show()["model"]


def exported(bench: Bench, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((bench.folder / name).read_text())))


def cancel_at_once(bench: Bench) -> None:
    """Cancel without waiting for it."""
    with open_context() as context:
        batch = context.batches.find("last")
        context.batches.cancel(batch.id, batch.name, time.time())
    assert bench.status()[1]["state"] == "cancelling"
