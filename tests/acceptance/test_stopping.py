"""A worker that is told to stop while a media host keeps it waiting."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.acceptance.harness import Bench, assert_files_are_as_recorded, csv_of, until

pytestmark = pytest.mark.acceptance


def test_a_worker_leaves_within_ten_seconds_of_sigterm_in_mid_download_and_the_next_fetches_what_is_paid(
    bench: Bench,
) -> None:
    router = bench.router()
    assert bench.do("submit", bench.write("cats.csv", csv_of(6))).code == 0
    router.faults(slow_media=60.0)
    worker = bench.start("worker")
    router.until_calls("media", 6, worker)
    worker.send(signal.SIGTERM)
    began = time.monotonic()
    ended = worker.wait()
    assert time.monotonic() - began < 10
    assert ended.code == 0, ended.err
    # Celery's advice about the user names a flag that this command has not.
    assert [word for word in ("Traceback", "Warning", "superuser") if word in ended.err] == []
    assert bench.status()["jobs"]["downloading"] == 6

    router.faults(slow_media=0.0)
    again = bench.start("worker")
    until(lambda: bench.status()["state"] == "finished", "the batch ends", again)
    router.assert_paid_once(6)
    assert router.calls("submit") == 6
    assert_files_are_as_recorded(bench.export(), Path(bench.status()["output_dir"]))
