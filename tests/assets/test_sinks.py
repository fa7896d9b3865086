"""What every keeper of media promises, and what files promise beside."""

from __future__ import annotations

import errno
import hashlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.assets import AssetCut, AssetRejected, AssetSink, AssetTooLarge, DatabaseSink, FileSink, Saved, open_sink
from runner.core.errors import DiskError, SettingsError
from runner.core.ranges import Begun
from tests.support.objectstore import ObjectStore

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40
JPEG = b"\xff\xd8\xff\xe0" + bytes(6000)
PAGE = b"<!doctype html><html><title>Expired</title></html>"


def pieces(content: bytes, size: int = 1000) -> Iterator[bytes]:
    for at in range(0, len(content), size):
        yield content[at : at + size]


def dies(after: bytes) -> Iterator[bytes]:
    yield after
    raise ConnectionResetError("peer")


def refuses_links(_source: Path, _target: Path) -> None:
    """As FAT does."""
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def bytes_of(saved: Saved) -> bytes:
    if saved.path is None:
        assert saved.content is not None
        return saved.content
    assert saved.content is None
    if saved.path.startswith("s3://"):
        # The fixture's environment leads there.
        return ObjectStore("").get(saved.path)
    return Path(saved.path).read_bytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "out" / "batch"


@pytest.fixture(params=["files", "database", "objects"])
def sink(request: pytest.FixtureRequest, folder: Path) -> AssetSink:
    if request.param != "objects":
        return open_sink(request.param, str(folder))
    store = request.getfixturevalue("object_store")
    return open_sink(store.address, f"{store.address}/batch")


class TestEverySink:
    def test_bytes_are_kept_as_they_came_with_size_and_hash(self, sink: AssetSink) -> None:
        saved = sink.save("a-1", pieces(PNG), declared_type="image/png", expected_size=len(PNG), limit=len(PNG))
        assert bytes_of(saved) == PNG
        assert (saved.size, saved.sha256) == (len(PNG), hashlib.sha256(PNG).hexdigest())
        assert (saved.media_type, saved.extension, saved.mismatch) == ("image/png", "png", False)

    def test_the_bytes_name_the_type_and_a_mismatch_is_noted(self, sink: AssetSink) -> None:
        saved = sink.save("a-1", pieces(JPEG), declared_type="image/png", url="https://a.invalid/x.png")
        assert (saved.media_type, saved.extension, saved.mismatch) == ("image/jpeg", "jpg", True)

    def test_octet_stream_declares_nothing(self, sink: AssetSink) -> None:
        saved = sink.save("a-1", pieces(PNG), declared_type="application/octet-stream")
        assert (saved.extension, saved.mismatch) == ("png", False)

    @pytest.mark.parametrize("size", [1, 7, 4096, 100_000])
    def test_the_size_of_the_pieces_changes_nothing(self, sink: AssetSink, size: int) -> None:
        assert sink.save("a-1", pieces(PNG, size)).sha256 == hashlib.sha256(PNG).hexdigest()

    @pytest.mark.parametrize("content", [PAGE, PAGE + b" " * 9000, b'{"error": "expired"}'])
    def test_a_page_in_place_of_media_is_rejected(self, sink: AssetSink, content: bytes, folder: Path) -> None:
        with pytest.raises(AssetRejected) as caught:
            sink.save("a-1", pieces(content), declared_type="image/png")
        assert "not media" in caught.value.reason
        assert not isinstance(caught.value, AssetTooLarge)
        assert not list(folder.glob("*"))

    def test_a_page_is_rejected_before_the_rest_of_it_is_read(self, sink: AssetSink) -> None:
        def endless() -> Iterator[bytes]:
            while True:
                yield PAGE + bytes(4096)

        with pytest.raises(AssetRejected):
            sink.save("a-1", endless())

    def test_fewer_bytes_than_announced_are_cut(self, sink: AssetSink, folder: Path) -> None:
        with pytest.raises(AssetCut, match="400 bytes came where 1,000 were announced"):
            sink.save("a-1", pieces(PNG[:400]), expected_size=1000)
        assert not list(folder.glob("*"))

    def test_more_bytes_than_announced_are_no_better(self, sink: AssetSink) -> None:
        with pytest.raises(AssetCut):
            sink.save("a-1", pieces(PNG), expected_size=10)

    @pytest.mark.parametrize("expected", [None, 0])
    def test_no_bytes_are_cut(self, sink: AssetSink, expected: int | None, folder: Path) -> None:
        with pytest.raises(AssetCut, match="without a single byte"):
            sink.save("a-1", iter([b"", b""]), declared_type="image/png", expected_size=expected)
        assert not list(folder.glob("*"))

    def test_more_than_the_limit_is_refused_as_soon_as_it_shows(self, sink: AssetSink, folder: Path) -> None:
        def endless() -> Iterator[bytes]:
            while True:
                yield PNG

        with pytest.raises(AssetTooLarge, match="100,000 bytes allowed"):
            sink.save("a-1", endless(), limit=100_000)
        assert not list(folder.glob("*"))

    def test_a_broken_connection_passes_through_and_leaves_nothing(self, sink: AssetSink, folder: Path) -> None:
        with pytest.raises(ConnectionResetError):
            sink.save("a-1", dies(PNG))
        assert not list(folder.glob("*"))
        assert not list(folder.glob(".*"))

    @pytest.mark.parametrize(
        ("body", "content_type", "extension"),
        [
            (b'{"error": "x"}', "application/json", "json"),
            (b'{"a": 1}', "application/problem+json", "json"),
            (b" [1]", "", "json"),
            (b"hello", "text/plain; charset=utf-8", "txt"),
            (b"a,b", "text/csv", "txt"),
            (PNG, "application/octet-stream", "png"),
            (b"", "application/json", "json"),
        ],
    )
    def test_a_result_without_media_is_kept_whatever_it_is(
        self, sink: AssetSink, body: bytes, content_type: str, extension: str
    ) -> None:
        saved = sink.save_document("a-result", body, content_type)
        assert bytes_of(saved) == body
        assert (saved.extension, saved.size) == (extension, len(body))
        assert saved.sha256 == hashlib.sha256(body).hexdigest()


class TestFiles:
    def test_a_file_stands_under_its_stem_and_the_extension_of_its_bytes(self, folder: Path) -> None:
        saved = FileSink(folder).save("cats-000001-1", pieces(JPEG), url="https://a.invalid/x.png")
        assert saved.path == str(folder / "cats-000001-1.jpg")
        assert [entry.name for entry in folder.iterdir()] == ["cats-000001-1.jpg"]

    def test_the_path_is_absolute_when_the_folder_is_not(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        relative = Path(os.path.relpath(folder))
        assert FileSink(relative).directory.is_absolute()

    def test_only_the_temporary_file_exists_while_bytes_come(self, folder: Path) -> None:
        seen: list[list[str]] = []

        def watched() -> Iterator[bytes]:
            for piece in pieces(PNG):
                seen.append([entry.name for entry in folder.iterdir()])
                yield piece

        FileSink(folder).save("a-1", watched())
        assert all(names == [".a-1.part"] for names in seen)

    def test_what_a_killed_process_left_is_written_over(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / ".a-1.part").write_bytes(b"x" * 100_000)
        saved = FileSink(folder).save("a-1", pieces(PNG))
        assert bytes_of(saved) == PNG
        assert [entry.name for entry in folder.iterdir()] == ["a-1.png"]

    def test_what_a_killed_process_named_and_did_not_mark_is_recognised(self, folder: Path) -> None:
        first = FileSink(folder).save("a-1", pieces(PNG))
        assert FileSink(folder).save("a-1", pieces(PNG)) == first
        assert [entry.name for entry in folder.iterdir()] == ["a-1.png"]

    def test_one_killed_between_its_two_names_leaves_the_file_whole(self, folder: Path) -> None:
        sink = FileSink(folder)
        first = sink.save("a-1", pieces(PNG))
        os.link(folder / "a-1.png", folder / ".a-1.part")
        (folder / ".a-1.tag").write_text('boot\n"v1"')
        assert sink.begun("a-1") is None
        with pytest.raises(ConnectionResetError):
            sink.save("a-1", dies(JPEG))
        assert bytes_of(first) == PNG
        os.link(folder / "a-1.png", folder / ".a-1.part")
        assert sink.save("a-1", pieces(PNG)) == first
        assert [entry.name for entry in folder.iterdir()] == ["a-1.png"]

    def test_a_second_process_at_the_same_file_is_noticed(self, folder: Path) -> None:
        sink = FileSink(folder)

        def overtaken() -> Iterator[bytes]:
            yield from pieces(PNG)
            assert bytes_of(FileSink(folder).save("a-1", pieces(PNG))) == PNG
            (folder / ".a-1.part").write_bytes(b"half")

        with pytest.raises(AssetCut, match="another process"):
            sink.save("a-1", overtaken())
        assert (folder / "a-1.png").read_bytes() == PNG

    def test_a_failed_save_keeps_the_file_that_was_there(self, folder: Path) -> None:
        sink = FileSink(folder)
        kept = sink.save("a-1", pieces(PNG))
        with pytest.raises(AssetCut):
            sink.save("a-1", pieces(PNG), expected_size=1)
        assert bytes_of(kept) == PNG

    def test_others_may_read_it_as_far_as_the_umask_says(self, folder: Path) -> None:
        before = os.umask(0o027)
        try:
            saved = FileSink(folder).save("a-1", pieces(PNG))
        finally:
            os.umask(before)
        assert saved.path is not None
        assert Path(saved.path).stat().st_mode & 0o777 == 0o640

    def test_a_disk_that_takes_no_more_is_named_with_advice(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
        try:
            with pytest.raises(DiskError) as caught:
                FileSink(folder).save("a-1", pieces(PNG * 10))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert str(folder) in caught.value.message
        assert caught.value.advice is not None
        assert list(folder.iterdir()) == []

    def test_a_file_in_place_of_the_folder_is_named_with_advice(self, folder: Path) -> None:
        folder.parent.mkdir(parents=True)
        folder.write_bytes(b"")
        with pytest.raises(DiskError) as caught:
            FileSink(folder).save("a-1", pieces(PNG))
        assert "a file stands where a folder is needed" in str(caught.value.advice)

    @pytest.fixture(params=["links", "no links"])
    def any_disk(self, request: pytest.FixtureRequest, folder: Path) -> FileSink:
        return FileSink(folder) if request.param == "links" else FileSink(folder, link=refuses_links)

    @pytest.mark.parametrize("there", [b"mine", PNG[:-1], PNG + b"x"])
    def test_nothing_of_somebody_elses_is_written_over(self, any_disk: FileSink, folder: Path, there: bytes) -> None:
        folder.mkdir(parents=True)
        for name in ("a-1.png", "a-1~2.png"):
            (folder / name).write_bytes(there)
        for _ in range(2):
            saved = any_disk.save("a-1", pieces(PNG))
            assert (saved.path, bytes_of(saved)) == (str(folder / "a-1~3.png"), PNG)
        assert sorted(entry.name for entry in folder.iterdir()) == ["a-1.png", "a-1~2.png", "a-1~3.png"]
        assert {(folder / name).read_bytes() for name in ("a-1.png", "a-1~2.png")} == {there}

    def test_nor_what_comes_to_stand_there_while_bytes_come(self, any_disk: FileSink, folder: Path) -> None:
        def crossed() -> Iterator[bytes]:
            yield PNG
            (folder / "a-1.png").write_bytes(b"mine")

        assert any_disk.save("a-1", crossed()).path == str(folder / "a-1~2.png")
        assert (folder / "a-1.png").read_bytes() == b"mine"

    def test_nor_where_a_planted_link_leads(self, any_disk: FileSink, folder: Path, tmp_path: Path) -> None:
        folder.mkdir(parents=True)
        for name in ("a-1.png", ".a-1.part"):
            (folder / name).symlink_to(tmp_path / "elsewhere")
        assert any_disk.save("a-1", pieces(PNG)).path == str(folder / "a-1~2.png")
        assert not (tmp_path / "elsewhere").exists()

    def test_without_links_a_name_that_a_killed_process_took_is_used(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "a-1.png").touch()
        saved = FileSink(folder, link=refuses_links).save("a-1", pieces(PNG))
        assert (saved.path, bytes_of(saved)) == (str(folder / "a-1.png"), PNG)
        assert [entry.name for entry in folder.iterdir()] == ["a-1.png"]

    def test_a_folder_in_place_of_the_file_leaves_nothing_half_done(self, folder: Path) -> None:
        (folder / "a-1.png").mkdir(parents=True)
        with pytest.raises(DiskError):
            FileSink(folder).save("a-1", pieces(PNG))
        assert [entry.name for entry in folder.iterdir()] == ["a-1.png"]

    @pytest.mark.parametrize("stem", ["", "a/../b", "../a", "/a", "a//b", "./a", "a\\b", "a\0b"])
    def test_a_stem_leads_nowhere_else(self, folder: Path, stem: str) -> None:
        with pytest.raises(ValueError, match="plain file name"):
            FileSink(folder).save(stem, pieces(PNG))

    def test_a_stem_may_stand_below_folders_and_leaves_nothing_else_there(self, folder: Path) -> None:
        saved = FileSink(folder).save("cats/one/a-1", pieces(PNG))
        assert saved.path == str(folder / "cats" / "one" / "a-1.png")
        assert [entry.name for entry in (folder / "cats" / "one").iterdir()] == ["a-1.png"]


class TestPartsOfFiles:
    """A file that came under a validator and broke off can go on."""

    def broken(self, folder: Path, came: bytes = PNG[:3000]) -> FileSink:
        sink = FileSink(folder)
        with pytest.raises(ConnectionResetError):
            sink.save("a-1", dies(came), expected_size=len(PNG), validator='"v1"')
        return sink

    def test_its_size_and_validator_are_known_to_any_process(self, folder: Path) -> None:
        self.broken(folder)
        assert FileSink(folder).begun("a-1") == Begun(3000, '"v1"')
        assert FileSink(folder).begun("a-2") is None

    def test_the_rest_makes_it_whole_with_the_hash_of_all_of_it(self, folder: Path) -> None:
        sink = self.broken(folder)
        begun = sink.begun("a-1")
        saved = sink.save("a-1", pieces(PNG[3000:]), expected_size=len(PNG), validator='"v1"', begun=begun)
        assert bytes_of(saved) == PNG
        assert (saved.size, saved.sha256) == (len(PNG), hashlib.sha256(PNG).hexdigest())
        assert [entry.name for entry in folder.iterdir()] == ["a-1.png"]

    def test_it_may_break_off_again_and_again(self, folder: Path) -> None:
        sink = self.broken(folder)
        for size in (5000, 8000):
            begun = sink.begun("a-1")
            assert begun is not None
            with pytest.raises(ConnectionResetError):
                sink.save("a-1", dies(PNG[begun.size : size]), expected_size=len(PNG), validator='"v1"', begun=begun)
            assert sink.begun("a-1") == Begun(size, '"v1"')

    def test_an_announced_end_that_came_too_early_is_a_part_and_too_many_bytes_are_none(self, folder: Path) -> None:
        sink = FileSink(folder)
        with pytest.raises(AssetCut):
            sink.save("a-1", pieces(PNG[:3000]), expected_size=len(PNG), validator='"v1"')
        assert sink.begun("a-1") == Begun(3000, '"v1"')
        with pytest.raises(AssetCut):
            sink.save("a-1", pieces(PNG), expected_size=3000, validator='"v1"')
        assert sink.begun("a-1") is None

    def test_a_page_and_a_file_beyond_the_limit_leave_nothing(self, folder: Path) -> None:
        sink = FileSink(folder)
        with pytest.raises(AssetRejected):
            sink.save("a-1", pieces(PAGE), expected_size=len(PAGE), validator='"v1"')
        with pytest.raises(AssetTooLarge):
            sink.save("a-1", pieces(PNG), expected_size=len(PNG), limit=100, validator='"v1"')
        assert list(folder.iterdir()) == []

    def test_after_another_start_of_the_machine_nothing_is_trusted(self, folder: Path) -> None:
        sink = self.broken(folder)
        tag = folder / ".a-1.tag"
        tag.write_text('another-boot\n"v1"')
        assert sink.begun("a-1") is None
        saved = sink.save("a-1", pieces(PNG), expected_size=len(PNG))
        assert bytes_of(saved) == PNG
        assert [entry.name for entry in folder.iterdir()] == ["a-1.png"]

    @pytest.mark.parametrize("later", [None, '"v2"'], ids=["without a validator", "under another"])
    def test_what_came_after_it_is_not_taken_for_its_end(self, folder: Path, later: str | None) -> None:
        sink = self.broken(folder)
        seen = []

        def watched() -> Iterator[bytes]:
            for piece in pieces(JPEG):
                yield piece
                # What a process killed here leaves to the next.
                seen.append(FileSink(folder).begun("a-1"))

        sink.save("a-1", watched(), expected_size=len(JPEG), validator=later)
        assert {begun.validator if begun else None for begun in seen} <= {later, None}

    def test_it_can_be_let_go_of(self, folder: Path) -> None:
        sink = self.broken(folder)
        sink.discard("a-1")
        sink.discard("a-1")
        assert (sink.begun("a-1"), list(folder.iterdir())) == (None, [])

    def test_a_part_that_went_away_meanwhile_is_worth_another_try(self, folder: Path) -> None:
        sink = self.broken(folder)
        with pytest.raises(AssetCut):
            sink.save("a-1", pieces(PNG[9000:]), expected_size=len(PNG), validator='"v1"', begun=Begun(9000, '"v1"'))

    def test_the_database_keeps_no_parts(self) -> None:
        sink = DatabaseSink()
        with pytest.raises(ConnectionResetError):
            sink.save("a-1", dies(PNG[:3000]), expected_size=len(PNG), validator='"v1"')
        assert sink.begun("a-1") is None


class TestChoosingASink:
    def test_the_setting_names_it(self, folder: Path) -> None:
        assert isinstance(open_sink("files", str(folder)), FileSink)
        assert isinstance(open_sink("database", str(folder)), DatabaseSink)

    def test_another_word_is_a_setting_that_cannot_be_right(self, folder: Path) -> None:
        with pytest.raises(SettingsError) as caught:
            open_sink("tape", str(folder))
        assert "`files`, `database` or the address" in str(caught.value.advice)
