"""Pictures of one's own as inputs: below the manifest's folder, or below one that is named."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.cli.context import open_context
from runner.cli.localfiles import LocalFiles
from runner.core.cells import CellFault
from tests.answers.bench import OPEN_MODEL, Bench

Start = Callable[..., Bench]
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16
TEMPLATE = '{"prompt": "{{prompt}}", "image": "{{picture:data-uri}}"}'


class TestWhichFiles:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / "mine"
        (folder / "in").mkdir(parents=True)
        (folder / "in" / "a.png").write_bytes(PNG)
        (tmp_path / "outside.png").write_bytes(PNG)
        (folder / "link.png").symlink_to(tmp_path / "outside.png")
        return folder

    @pytest.mark.parametrize("name", ["in/a.png", "./in/../in/a.png"])
    def test_names_count_from_the_manifests_folder(self, folder: Path, name: str) -> None:
        assert base64.b64decode(LocalFiles(folder)(name, "base64")) == PNG

    def test_a_whole_path_below_the_folder_is_fine(self, folder: Path) -> None:
        assert LocalFiles(folder)(str(folder / "in" / "a.png"), "base64")

    @pytest.mark.parametrize("name", ["../outside.png", "link.png", "in/../../outside.png"])
    def test_nothing_leads_out_of_it_unless_that_is_allowed(self, folder: Path, name: str) -> None:
        with pytest.raises(CellFault, match="is not below") as raised:
            LocalFiles(folder)(name, "base64")
        assert "--files-below" in (raised.value.advice or "")
        assert LocalFiles(folder, folder.parent)(name, "base64")

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("in/b.png", "there is no file"),
            ("in", "there is no file"),
            ("x\0y", "cannot be read: no such name"),
            ("a" * 300, "cannot be read: File name too long"),
            ("https://example.com/a.png", "is an address and no file"),
        ],
    )
    def test_what_cannot_be_read_is_said(self, folder: Path, name: str, why: str) -> None:
        with pytest.raises(CellFault, match=why):
            LocalFiles(folder)(name, "base64")


class TestABatchWithPictures:
    def test_they_are_sent_as_the_template_asks_and_the_export_names_the_file(self, start: Start) -> None:
        bench = start()
        (bench.folder / "cat.png").write_bytes(PNG)
        bench.write("body.json", TEMPLATE)
        told = bench.submit("prompt,picture\na cat,cat.png\n", "--template", "body.json", model=OPEN_MODEL)
        assert told.code == 0, told.err
        bench.work()
        assert bench.status()[1]["jobs"]["succeeded"] == 1
        with open_context() as context:
            sent = json.loads(context.jobs.body(context.queries.find_jobs("last:1")[0].id))
        assert sent == {"prompt": "a cat", "image": f"data:image/png;base64,{base64.b64encode(PNG).decode()}"}
        bench.cli("export", "last", "--format", "jsonl", "-o", "out.jsonl")
        exported = json.loads((bench.folder / "out.jsonl").read_text())
        assert exported["input"]["picture"] == "cat.png"

    def test_a_missing_one_is_found_before_anything_is_sent(self, start: Start) -> None:
        bench = start()
        bench.write("body.json", TEMPLATE)
        told = bench.submit("prompt,picture\na cat,cat.png\n", "--template", "body.json", model=OPEN_MODEL)
        assert told.code == 2
        assert "line 2, `picture`: there is no file 'cat.png'" in told.err
        assert bench.router.ledger()["billed"] == 0

    def test_a_picture_that_is_gone_later_does_not_matter(self, start: Start) -> None:
        bench = start()
        (bench.folder / "cat.png").write_bytes(PNG)
        bench.write("body.json", TEMPLATE)
        bench.submit("prompt,picture\na cat,cat.png\n", "--template", "body.json", model=OPEN_MODEL)
        (bench.folder / "cat.png").unlink()
        told = bench.submit("prompt,picture\na cat,cat.png\n", "--template", "body.json", model=OPEN_MODEL)
        assert (told.code, "is there already" in told.err) == (0, True)
        bench.work()
        assert bench.status()[1]["jobs"]["succeeded"] == 1

    def test_files_of_another_folder_are_embedded_where_it_is_named(self, start: Start, tmp_path: Path) -> None:
        bench = start()
        pictures = tmp_path / "pictures"
        pictures.mkdir()
        (pictures / "cat.png").write_bytes(PNG)
        (bench.folder / "sheets").mkdir()
        bench.write("body.json", TEMPLATE)
        bench.write("sheets/rows.csv", "prompt,picture\na cat,../pictures/cat.png\n")
        arguments = ("validate", "sheets/rows.csv", "--template", "body.json", "--model", OPEN_MODEL)
        assert bench.cli(*arguments).code == 2
        assert bench.cli(*arguments, "--files-below", "pictures").code == 0
