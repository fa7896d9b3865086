"""Getting rows out again: with their outcome, or to be mended and run once more."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable

import pytest

from tests.answers.bench import MODEL, Bench

Start = Callable[..., Bench]
ROWS = (
    'id,prompt,body.seed,note\nfox,"a fox, [fail:provider_error]",7,=1+1\nowl,an owl,,"two\nlines"\n'
    "cat,a cat [fail:content_policy_violation],1577134800018,\n"
)


def exported(bench: Bench, *options: str) -> str:
    name = bench.folder / "out.txt"
    ended = bench.cli("export", "last", "--output", str(name), *options)
    assert ended.code == 0, ended.err
    return name.read_text()


class TestFailedRows:
    def test_they_come_back_as_they_stood_with_their_model_and_can_be_run(self, start: Start) -> None:
        bench = start()
        bench.submit(ROWS)
        bench.work()
        text = exported(bench, "--failed")
        rows = list(csv.DictReader(io.StringIO(text)))
        assert [(row["id"], row["body.seed"], row["note"], row["model"]) for row in rows] == [
            ("fox", "7", "=1+1", MODEL),
            ("cat", "1577134800018", "", MODEL),
        ]
        mended = bench.write("again.csv", text.replace(" [fail:provider_error]", "").replace("[fail:", "["))
        assert bench.cli("submit", mended).code == 0
        bench.work()
        assert bench.status()[1]["jobs"]["succeeded"] == 2

    def test_jsonl_comes_back_letter_for_letter(self, start: Start) -> None:
        bench = start()
        first = '{"id": "a", "prompt": "x [fail:provider_error]", "model": "bfl/flux-2-flex", "big": 9007199254740993}'
        second = '{"prompt":"y [fail:provider_error]","n":1.50}'
        bench.write("rows.jsonl", f'{first}\n{{"prompt": "fine"}}\n{second}\n')
        bench.cli("submit", "rows.jsonl", "--model", MODEL)
        bench.work()
        lines = exported(bench, "--failed").splitlines()
        assert lines == [first, f'{second[:-1]}, "model": "{MODEL}"}}']
        assert [json.loads(line)["model"] for line in lines] == ["bfl/flux-2-flex", MODEL]

    def test_a_row_that_lost_its_media_is_among_them(self, start: Start) -> None:
        bench = start({"dead_links": "always"})
        bench.submit("id,prompt\na,a cat\n")
        bench.work()
        assert [row["id"] for row in csv.DictReader(io.StringIO(exported(bench, "--failed")))] == ["a"]

    @pytest.mark.parametrize("options", [["--format", "jsonl"], ["--for-spreadsheets"]])
    def test_another_form_would_not_be_the_manifests_own(self, start: Start, options: list[str]) -> None:
        bench = start()
        bench.submit()
        ended = bench.cli("export", "last", "--failed", *options)
        assert (ended.code, "as they stood in the manifest" in ended.err) == (2, True)


class TestSpreadsheets:
    def test_cells_that_would_be_calculated_are_made_harmless_and_numbers_stay(self, start: Start) -> None:
        bench = start()
        rows = "id,prompt,note\n1,=HYPERLINK(1),-5\n2,@SUM(A1),+1.5\n3,-2+3,a=b\n"
        bench.submit(rows)
        plain = list(csv.DictReader(io.StringIO(exported(bench))))
        safe = list(csv.DictReader(io.StringIO(exported(bench, "--for-spreadsheets"))))
        assert [row["prompt"] for row in plain] == ["=HYPERLINK(1)", "@SUM(A1)", "-2+3"]
        assert [row["prompt"] for row in safe] == ["'=HYPERLINK(1)", "'@SUM(A1)", "'-2+3"]
        assert [row["note"] for row in safe] == ["-5", "+1.5", "a=b"]

    def test_for_jsonl_it_means_nothing(self, start: Start) -> None:
        bench = start()
        bench.submit()
        assert bench.cli("export", "last", "--format", "jsonl", "--for-spreadsheets").code == 2


class TestAgain:
    def test_an_export_is_a_manifest_of_its_own(self, start: Start) -> None:
        bench = start()
        bench.submit("id,prompt,body.seed\n007,a cat,7\n008,a dog,\n")
        bench.work()
        exported(bench)
        (bench.folder / "out.txt").rename(bench.folder / "again.csv")
        assert bench.cli("submit", "again.csv").code == 0
        bench.work()
        assert bench.status()[1]["jobs"]["succeeded"] == 2
        assert [bench.show(row)["custom_id"] for row in (1, 2)] == ["007", "008"]

    def test_parquet_is_written_whole(self, start: Start) -> None:
        bench = start()
        bench.submit("id,prompt\n007,a cat\n")
        bench.work()
        assert bench.cli("export", "last", "--format", "parquet", "-o", "out.parquet").code == 0
        assert (bench.folder / "out.parquet").read_bytes()[-4:] == b"PAR1"

    @pytest.mark.parametrize(
        ("name", "begins"),
        [("out.jsonl", b'{"row"'), ("out.ndjson", b'{"row"'), ("out.PARQUET", b"PAR1"), ("o", b"prompt,")],
    )
    def test_the_files_ending_tells_the_format(self, start: Start, name: str, begins: bytes) -> None:
        bench = start()
        bench.submit()
        assert bench.cli("export", "last", "-o", name).code == 0
        assert (bench.folder / name).read_bytes().startswith(begins)

    def test_the_manifest_itself_is_never_replaced(self, start: Start) -> None:
        bench = start()
        bench.submit("id,prompt\n007,a cat\n")
        told = bench.cli("export", "last", "-o", "prompts.csv")
        assert (told.code, "is the manifest of `prompts`" in told.err) == (2, True)
        assert (bench.folder / "prompts.csv").read_text() == "id,prompt\n007,a cat\n"

    def test_another_format_is_refused_with_those_that_there_are(self, start: Start) -> None:
        bench = start()
        bench.submit()
        told = bench.cli("export", "last", "--format", "xlsx")
        assert (told.code, "csv, jsonl, parquet" in told.err) == (2, True)


class TestReports:
    def test_a_page_is_written_beside_where_one_stands_and_named(self, start: Start) -> None:
        bench = start()
        bench.submit("id,prompt\nfox,a fox\nowl,an owl [fail:provider_error]\n")
        bench.work()
        told = bench.cli("report", "last")
        page = bench.folder / "prompts-report.html"
        assert (told.code, told.out.strip()) == (0, str(page))
        text = page.read_text()
        assert "an owl [fail:provider_error]" in text
        assert "data:image/webp;base64," in text

    def test_rows_that_did_not_succeed_are_shown_however_many_did(
        self, start: Start, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("runner.cli.reporting.MOST_ROWS", 2)
        bench = start()
        bench.submit("id,prompt\na,a cat\nb,a dog\nc,an owl [fail:provider_error]\n")
        bench.work()
        bench.cli("report", "last", "-o", "page.html")
        page = (bench.folder / "page.html").read_text()
        assert "2 of 3 rows are shown" in page
        assert '"id":"a"' in page
        assert '"id":"b"' not in page
        assert '"id":"c"' in page
