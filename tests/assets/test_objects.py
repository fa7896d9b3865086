"""What an object store promises beside what every keeper of media does."""

from __future__ import annotations

import hashlib
import json
import random
import resource
import tempfile
from collections.abc import Callable

import pytest

from runner.assets import open_sink
from runner.assets.objects import IN_MEMORY, LARGEST_WHOLE, ObjectSink
from runner.core.errors import DiskError, SettingsError
from tests.answers.bench import Bench, start
from tests.support.loopback import Host, response, sends
from tests.support.objectstore import ObjectStore, lead_to

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40
REFUSAL = b'<?xml version="1.0"?><Error><Code>SignatureDoesNotMatch</Code><Message>no</Message></Error>'

__all__ = ["start"]


def test_an_object_stands_below_the_address_with_its_type_and_is_named_by_its_whole_address(
    object_store: ObjectStore,
) -> None:
    saved = ObjectSink("s3://pictures/batches/cats").save("cats-000001-1", [PNG])
    assert saved.path == "s3://pictures/batches/cats/cats-000001-1.png"
    assert object_store.names() == ["batches/cats/cats-000001-1.png"]
    assert object_store.content_type("batches/cats/cats-000001-1.png") == "image/png"


def test_a_file_that_was_sent_before_the_process_died_is_recognised(object_store: ObjectStore) -> None:
    sink = ObjectSink("s3://pictures/cats")
    first, second = sink.save("a-1", [PNG]), sink.save("a-1", [PNG])
    assert first == second
    assert object_store.names() == ["cats/a-1.png"]


def test_nothing_of_somebody_elses_is_written_over(object_store: ObjectStore) -> None:
    object_store.put("cats/a-1.png", b"mine")
    saved = ObjectSink("s3://pictures/cats").save("a-1", [PNG])
    assert saved.path == "s3://pictures/cats/a-1~2.png"
    assert object_store.get("s3://pictures/cats/a-1.png") == b"mine"


def test_a_large_file_goes_in_parts_and_comes_back_whole(object_store: ObjectStore) -> None:
    large = PNG + random.Random(1).randbytes(LARGEST_WHOLE)
    sink = ObjectSink("s3://pictures/cats")
    for _ in range(2):
        saved = sink.save("a-1", (large[at : at + 1_000_000] for at in range(0, len(large), 1_000_000)))
        assert (saved.size, saved.sha256) == (len(large), hashlib.sha256(large).hexdigest())
    assert object_store.names() == ["cats/a-1.png"]
    assert hashlib.sha256(object_store.get(saved.path or "")).hexdigest() == saved.sha256


def test_a_check_leaves_nothing_behind(object_store: ObjectStore) -> None:
    ObjectSink("s3://pictures/cats").check()
    assert object_store.names() == []


class TestWhatIsAtFault:
    def test_a_bucket_that_is_not_there_is_named_with_advice(self, object_store: ObjectStore) -> None:
        sink = ObjectSink("s3://no-such-bucket/cats")
        for attempt in (sink.check, lambda: sink.save("a-1", [PNG])):
            with pytest.raises(DiskError, match="it does not exist") as caught:
                attempt()
            assert caught.value.advice == "make the bucket, then resume the batch"
            assert not caught.value.passing

    def test_a_refused_key_is_named_and_not_told(self, loopback_host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
        loopback_host.answers = [sends(response(REFUSAL, status="403 Forbidden"))]
        lead_to(monkeypatch, loopback_host.url)
        with pytest.raises(DiskError, match="its key is refused") as caught:
            ObjectSink("s3://pictures/cats").save("a-1", [PNG])
        assert "secret-of-the-store" not in f"{caught.value.message}{caught.value.advice}"
        assert not caught.value.passing

    def test_a_store_that_is_away_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lead_to(monkeypatch, "http://127.0.0.1:1")
        with pytest.raises(DiskError, match="cannot write to s3://pictures/cats") as caught:
            ObjectSink("s3://pictures/cats").check()
        assert "\n" not in caught.value.message
        assert caught.value.passing

    def test_a_folder_for_temporary_files_that_is_full_is_named_and_not_the_store(
        self, object_store: ObjectStore
    ) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
        try:
            with pytest.raises(DiskError, match="cannot write") as caught:
                ObjectSink("s3://pictures/cats").save("a-1", [PNG] * (IN_MEMORY // len(PNG) + 2))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert tempfile.gettempdir() in caught.value.message
        assert "TMPDIR" in str(caught.value.advice)
        assert object_store.names() == []

    @pytest.mark.parametrize("address", ["az://container/x", "s3:///x"])
    def test_an_address_that_cannot_be_used_is_said_at_once(
        self, monkeypatch: pytest.MonkeyPatch, address: str
    ) -> None:
        monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
        with pytest.raises(SettingsError, match="no object store that can be used"):
            open_sink(address, address)


class TestABatch:
    def test_its_media_go_there_and_nowhere_else(
        self, start: Callable[..., Bench], object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench = start()
        monkeypatch.setenv("COMFY_BATCH_ASSET_STORE", f"{object_store.address}/batches")
        bench.submit("id,prompt\nfox,a fox\nowl,an owl [moderated]\n")
        bench.work()
        said, summary = bench.status()
        assert (said.code, summary["output_dir"]) == (0, "s3://pictures/batches/prompts")
        (asset,) = bench.show(1)["assets"]
        assert asset["path"] == "s3://pictures/batches/prompts/prompts-000001-fox-1.png"
        content = object_store.get(asset["path"])
        assert (asset["size"], asset["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
        assert bench.show(2)["result_path"] == "s3://pictures/batches/prompts/prompts-000002-owl-0.json"
        assert not (bench.folder / "home" / "output").exists()

    def test_a_store_that_cannot_be_written_is_said_before_anything_is_paid_for(
        self, start: Callable[..., Bench], object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench = start()
        monkeypatch.setenv("COMFY_BATCH_ASSET_STORE", "s3://no-such-bucket")
        ended = bench.submit()
        assert (ended.code, "make the bucket" in ended.err) == (3, True)
        assert bench.router.runs() == 0

    @pytest.mark.parametrize(
        ("address", "ok", "says", "cure"),
        [
            ("s3://pictures/batches", True, "s3://pictures/batches can be written", None),
            (
                "s3://no-such-bucket",
                False,
                "cannot write to s3://no-such-bucket: it does not exist",
                "make the bucket, then resume the batch",
            ),
        ],
    )
    def test_doctor_finds_out_whether_it_can_be_written(
        self,
        start: Callable[..., Bench],
        object_store: ObjectStore,
        monkeypatch: pytest.MonkeyPatch,
        address: str,
        ok: bool,
        says: str,
        cure: str | None,
    ) -> None:
        bench = start()
        monkeypatch.setenv("COMFY_BATCH_ASSET_STORE", address)
        found = json.loads(bench.cli("doctor", "--json").out)
        assert found["checks"][-1] == {"check": "media", "ok": ok, "says": says, "cure": cure}
        assert object_store.names() == []

    def test_one_that_is_away_for_a_moment_costs_time_only(
        self, start: Callable[..., Bench], object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench = start()
        monkeypatch.setenv("COMFY_BATCH_ASSET_STORE", object_store.address)
        bench.submit("prompt,model\na cat,\na cat [moderated],\n")
        lead_to(monkeypatch, "http://127.0.0.1:1")
        bench.work(12)
        assert [bench.events(row)[-1] for row in (1, 2)] == ["storage_away"] * 2
        assert bench.status()[1]["pause_reason"] is None
        lead_to(monkeypatch, object_store.endpoint)
        bench.work()
        said, summary = bench.status()
        assert (said.code, summary["assets"]["saved"]) == (0, 1)
        assert len(object_store.names()) == 2
        bench.router.assert_paid_once(2)

    def test_one_that_refuses_pauses_the_batch_and_loses_nothing(
        self,
        start: Callable[..., Bench],
        object_store: ObjectStore,
        monkeypatch: pytest.MonkeyPatch,
        loopback_host: Host,
    ) -> None:
        bench = start()
        monkeypatch.setenv("COMFY_BATCH_ASSET_STORE", object_store.address)
        bench.submit("prompt\n" + "a cat\n" * 3)
        loopback_host.answers = [sends(response(REFUSAL, status="403 Forbidden"))]
        lead_to(monkeypatch, loopback_host.url)
        bench.work()
        assert bench.status()[1]["pause_reason"] == "storage"
        lead_to(monkeypatch, object_store.endpoint)
        bench.resume()
        bench.work()
        said, summary = bench.status()
        assert (said.code, summary["assets"]["saved"]) == (0, 3)
        bench.router.assert_paid_once(3)
