"""Watching a batch that others work on."""

from __future__ import annotations

import io
from collections.abc import Callable

from rich.console import Console

from runner.cli.context import open_context
from runner.cli.watching import Ended, beside_words, details_of, watch
from tests.answers.bench import Bench

Start = Callable[..., Bench]


class Never:
    """Nobody says that it is enough, and no time passes."""

    def wait(self, seconds: float) -> bool:
        """Go on at once."""
        return False


def test_a_finished_batch_is_shown_with_its_end_and_its_exit_status(start: Start) -> None:
    bench = start()
    bench.submit("prompt\na cat\na dog [fail:provider_error]\n")
    bench.work()
    ended = bench.cli("watch", "last")
    assert (ended.code, "1 of 2 succeeded, 1 failed" in ended.out) == (1, True)
    assert bench.cli("watch", "last", "--json").document["jobs"]["failed"] == 1


def test_where_nobody_works_that_is_said_and_the_wait_ends(start: Start) -> None:
    bench = start()
    bench.submit("prompt\na cat\n")
    ended = bench.cli("watch", "last", "--wait", "0")
    assert (ended.code, "No worker is at it now" in ended.err) == (3, True)


def test_a_line_beside_the_bar_tells_pace_places_cost_and_failures(start: Start) -> None:
    bench = start(duration=60.0, concurrency=1)
    rows = "".join(f"a cat {number}\n" for number in range(4))
    bench.submit(f"prompt\n{rows}a fox [fail:provider_error] [slow:0]\n", "--max-in-flight", "5")
    bench.work(1.0)
    with open_context() as context:
        details = details_of(context, context.batches.find("last"))
    (line,) = beside_words(details, bench.clock.now)
    assert line == "5 of 5 in flight, place 0 to 3 in the Router's queue"
    bench.work()
    with open_context() as context:
        details = details_of(context, context.batches.find("last"))
    first, second = beside_words(details, bench.clock.now)
    assert first == "0 of 5 in flight, $0.12 billed so far"
    assert second.startswith("failed: 1 job: provider_error; row 5: ")


def test_a_screen_ends_with_the_batch_and_shows_all_of_it(start: Start) -> None:
    bench = start()
    bench.submit("prompt\na cat\n")
    bench.work()
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    with open_context() as context:
        batch = context.batches.find("last")
        assert watch(context, batch.id, console=console, interrupted=Never()) is Ended.FINISHED
    assert "1 of 1 done" in screen.getvalue()
    assert "$0.03 billed so far" in screen.getvalue()


def test_every_batch_is_listed(start: Start) -> None:
    bench = start()
    assert bench.cli("list").out.startswith("No batch yet")
    bench.submit("prompt\na cat\n")
    assert [batch["name"] for batch in bench.cli("list", "--json").document["batches"]] == ["prompts"]
