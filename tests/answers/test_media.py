"""What media hosts do, live: what is kept, what is asked for again, and that nothing is paid for twice."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.core.addresses import is_public
from tests.answers.bench import Bench

Start = Callable[..., Bench]


def files_of(bench: Bench) -> dict[str, bytes]:
    """Everything in the output folder, hidden or not."""
    folder = bench.folder / "home" / "output" / "prompts"
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def assert_saved(bench: Bench, name: str = "prompts-000001-1.png") -> None:
    """The one file is there, as it is recorded, and nothing beside it."""
    (asset,) = bench.show()["assets"]
    files = files_of(bench)
    assert list(files) == [name]
    assert Path(asset["path"]).name == name
    assert (asset["size"], asset["sha256"]) == (len(files[name]), hashlib.sha256(files[name]).hexdigest())
    assert bench.status()[0].code == 0


@pytest.mark.parametrize("fault", ["media_truncated", "media_empty", "media_500", "media_drop"])
def test_a_file_that_does_not_come_whole_is_fetched_again_by_the_same_link(start: Start, fault: str) -> None:
    bench = start({fault: 2})
    bench.submit()
    bench.work()
    assert_saved(bench)
    assert bench.events() == ["accepted", "result", "asset_interrupted", "asset_interrupted", "asset_saved"]
    bench.router.assert_paid_once(1)


def test_a_page_in_place_of_the_file_is_not_kept_and_the_result_is_read_once_more(start: Start) -> None:
    bench = start({"media_html": 1})
    bench.submit()
    bench.work()
    assert_saved(bench)
    assert bench.events() == ["accepted", "result", "asset_link_dead", "result", "asset_saved"]
    bench.router.assert_paid_once(1)


def test_a_page_that_is_always_there_leaves_no_file_and_says_what_it_was(start: Start) -> None:
    bench = start({"media_html": "always"})
    bench.submit()
    bench.work()
    (asset,) = bench.show()["assets"]
    assert (asset["state"], asset["path"], files_of(bench)) == ("failed", None, {})
    assert "text/html" in asset["error"]
    bench.router.assert_paid_once(1)


def test_a_file_without_a_type_is_named_by_its_bytes(start: Start) -> None:
    bench = start({"media_wrong_type": "always"})
    bench.submit()
    bench.work()
    assert_saved(bench)
    assert bench.show()["assets"][0]["media_type"] == "image/png"


def test_a_redirect_to_another_host_of_this_machine_is_followed_without_the_key(start: Start) -> None:
    bench = start({"media_redirect": 1})
    bench.submit()
    bench.work()
    assert_saved(bench)
    assert bench.events() == ["accepted", "result", "asset_saved"]
    assert bench.router.ledger(summary=True)["credentials_leaked"] == 0


def test_a_link_to_an_address_that_is_not_everybodys_is_dead_and_show_says_what_would_allow_it(start: Start) -> None:
    bench = start()
    bench.media_from = is_public
    bench.submit()
    bench.work()
    (asset,) = bench.show()["assets"]
    assert (asset["state"], files_of(bench)) == ("failed", {})
    assert "private address (127.0.0.1)" in asset["error"]
    assert "COMFY_BATCH_ALLOW_PRIVATE_MEDIA=1" in bench.cli("show", "last:1").out
    assert bench.events() == ["accepted", "result", "asset_link_dead", "result", "asset_link_dead"]
    assert bench.router.ledger(summary=True)["calls"].get("media", 0) == 0
    bench.router.assert_paid_once(1)


class TestNameTemplates:
    def test_media_are_named_and_put_into_folders_as_the_template_says(self, start: Start) -> None:
        bench = start()
        bench.submit(
            "id,prompt\nfox,a fox\na/b,an owl\n",
            "--name-template",
            "{batch}/{custom_id}-{index}.{ext}",
            "--output",
            "o",
        )
        bench.work()
        found = sorted(str(path.relative_to(bench.folder / "o")) for path in (bench.folder / "o").rglob("*.png"))
        assert len(found) == 2
        assert found[1] == "prompts/fox-1.png"
        assert found[0].startswith("prompts/a_b~")
        assert bench.show()["assets"][0]["path"] == str(bench.folder / "o" / "prompts" / "fox-1.png")

    def test_one_that_cannot_be_meant_is_refused_before_anything_else(self, start: Start) -> None:
        told = start().submit("prompt\na cat\n", "--name-template", "{index}.{ext}")
        assert (told.code, "--name-template" in told.err) == (2, True)
