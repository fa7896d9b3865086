"""What an export writes is a manifest again, and nothing in it has changed."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Literal

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.errors import DiskError
from runner.core.inputs import InputFields
from runner.core.manifest import JobSpec, ManifestOptions, ReadReport, read_manifest
from runner.core.types import JobState
from runner.report.again import csv_again, jsonl_again
from runner.report.csvtext import csv_record
from runner.report.export import csv_lines, jsonl_lines, write_whole
from runner.report.parquet import write_parquet
from runner.store.queries import AssetView, JobView

MODEL = "bfl/flux-2-pro"
FIELDS: InputFields = {"prompt": "string", "width": "integer", "note": "string"}
MOMENT = 1_800_000_000.123


def view(spec: JobSpec, **more: Any) -> JobView:
    """A job of that row, as the database tells of it."""
    asset = AssetView(1, "saved", "/out/a.png", "image/png", 12, "ab", False, None, False)
    known: dict[str, Any] = {
        "id": spec.row,
        "batch_id": "b",
        "row": spec.row,
        "custom_id": spec.custom_id,
        "model": spec.model,
        "state": JobState.SUCCEEDED,
        "charge": "billed",
        "run": 1,
        "idempotency_key": f"k-{spec.row}",
        "request_id": "r",
        "reason": None,
        "error_type": None,
        "error_detail": None,
        "queue_position": None,
        "due_at": None,
        "submit_call_id": None,
        "read_call_id": None,
        "submitted_at": MOMENT,
        "finished_at": None,
        "result_path": None,
        "remark": None,
        "columns": spec.columns,
        "assets": (asset,),
    }
    return JobView(**(known | more))


def read(text: str, form: Literal["csv", "jsonl"]) -> tuple[list[JobSpec], list[str]]:
    report = ReadReport()
    items = list(
        read_manifest([text.encode()], ManifestOptions(format=form, model=MODEL), lambda _model: FIELDS, report)
    )
    assert all(isinstance(item, JobSpec) for item in items), items
    return [item for item in items if isinstance(item, JobSpec)], report.columns


def sent(specs: Sequence[JobSpec]) -> list[tuple[str, str, bytes, str]]:
    return [(spec.custom_id, spec.model, spec.body, spec.query) for spec in specs]


#: Texts as spreadsheets have them, without what a manifest may not hold.
CELLS = st.text(
    st.one_of(st.sampled_from("\r\n\",;'= \t"), st.characters(exclude_categories=["Cs", "Cc"])), max_size=12
)
PROMPTS = CELLS.filter(lambda text: bool(text.strip()))
CSV_ROWS = st.lists(
    st.tuples(
        PROMPTS, st.sampled_from(["", "7", "007", " 12 "]), CELLS, st.sampled_from(["", MODEL, "acme/paint"]), CELLS
    ),
    min_size=1,
    max_size=6,
)
NUMBERS = st.sampled_from([0, -1, 9007199254740993, 1.5, 1e300, True, None, [1, "a"], {"b": [None]}])
JSON_ROWS = st.lists(
    st.fixed_dictionaries(
        {"prompt": PROMPTS},
        optional={
            "width": st.integers(),
            "note": CELLS,
            "model": st.sampled_from([MODEL, "acme/paint"]),
            "meta": NUMBERS,
            "body": st.fixed_dictionaries({"x": NUMBERS, "prompt": PROMPTS}),
            "state": CELLS,
            "input": NUMBERS,
        },
    ),
    min_size=1,
    max_size=6,
)


class TestReadBack:
    @given(rows=CSV_ROWS, named=st.booleans())
    def test_a_csv_manifest_that_was_exported_as_csv_sends_the_same(
        self, rows: list[tuple[str, ...]], named: bool
    ) -> None:
        header = ["prompt", "width", "note", "model", "row" if named else "series"]
        manifest = "".join(csv_record(list(row)) for row in [header, *rows])
        before, columns = read(manifest, "csv")
        after, _ = read("".join(csv_lines(lambda: map(view, before), columns)), "csv")
        assert sent(after) == sent(before)
        own = [json.loads(spec.columns) for spec in after]
        assert [{name: row[name] for name in columns} for row in own] == [json.loads(spec.columns) for spec in before]

    @given(rows=JSON_ROWS)
    def test_a_jsonl_manifest_that_was_exported_as_jsonl_sends_the_same(self, rows: list[dict[str, Any]]) -> None:
        before, _ = read("".join(json.dumps(row) + "\n" for row in rows), "jsonl")
        after, _ = read("".join(jsonl_lines(map(view, before))), "jsonl")
        assert sent(after) == sent(before)
        kept = [{k: v for k, v in json.loads(spec.columns).items() if k != "model"} for spec in after]
        assert kept == [{k: v for k, v in row.items() if k != "model"} for row in rows]

    @given(rows=CSV_ROWS, delimiter=st.sampled_from([",", ";", "\t"]))
    def test_rows_to_be_run_again_send_the_same(self, rows: list[tuple[str, ...]], delimiter: str) -> None:
        manifest = "".join(csv_record(list(row)) for row in [("prompt", "width", "note", "model", "x"), *rows])
        before, columns = read(manifest, "csv")
        again = "".join(csv_again(map(view, before), columns, delimiter))
        options = ManifestOptions(format="csv", delimiter=delimiter)
        after = list(read_manifest([again.encode()], options, lambda _: FIELDS))
        assert sent([item for item in after if isinstance(item, JobSpec)]) == sent(before)

    @given(rows=JSON_ROWS)
    def test_objects_to_be_run_again_send_the_same(self, rows: list[dict[str, Any]]) -> None:
        before, _ = read("".join(json.dumps(row) + "\n" for row in rows), "jsonl")
        after, _ = read("".join(jsonl_again(map(view, before))), "jsonl")
        assert sent(after) == sent(before)

    def test_a_line_that_only_looks_exported_is_read_as_it_stands(self) -> None:
        (spec,), _ = read('{"prompt": "a cat", "input": {"prompt": "a dog"}}', "jsonl")
        assert spec.body == b'{"prompt":"a cat"}'


class TestOwnColumns:
    def test_an_outcome_column_gets_a_name_that_no_column_of_the_manifest_has(self) -> None:
        specs, columns = read("prompt,comfy_row,row\na cat,1,2\n", "csv")
        header, record = csv_lines(lambda: map(view, specs), columns)
        assert header.startswith("prompt,comfy_row,row,comfy_comfy_row,custom_id,")
        assert record.startswith("a cat,1,2,1,")
        again, _ = read(header + record, "csv")
        assert sent(again) == sent(specs)

    def test_numbers_within_a_value_stay_numbers_digit_for_digit(self) -> None:
        specs, columns = read('{"prompt":"a","meta":{"n":1,"f":1.50,"l":[9007199254740993,null,"x"]}}\n', "jsonl")
        _, record = csv_lines(lambda: map(view, specs), columns)
        assert record.startswith('a,"{""n"":1,""f"":1.50,""l"":[9007199254740993,null,""x""]}",')


class TestParquet:
    def test_outcome_columns_keep_out_of_the_way_of_the_manifests_own(self) -> None:
        specs, columns = read("prompt,comfy_row,row\na cat,x,y\n", "csv")
        (row,) = self.table(specs, columns).to_pylist()
        assert (row["comfy_row"], row["row"], row["comfy_comfy_row"]) == ("x", "y", 1)

    def table(self, specs: Sequence[JobSpec], columns: Sequence[str], **more: Any) -> Any:
        file = io.BytesIO()
        write_parquet(lambda: (view(spec, **more) for spec in specs), columns, file)
        return pyarrow.parquet.read_table(io.BytesIO(file.getvalue()))

    def test_own_columns_are_texts_as_they_were_written_and_the_outcome_has_types(self) -> None:
        specs, columns = read("id,prompt,width,state\n007,a cat,0512,kept\n", "csv")
        table = self.table(specs, columns)
        (row,) = table.to_pylist()
        assert [row[name] for name in columns] == ["007", "a cat", "0512", "kept"]
        assert (row["row"], row["comfy_state"], row["submitted_at"]) == (
            1,
            "succeeded",
            datetime.fromtimestamp(MOMENT, UTC),
        )
        assert row["assets"] == [
            {"path": "/out/a.png", "media_type": "image/png", "size": 12, "sha256": "ab", "state": "saved"}
        ]
        assert row["finished_at"] is None

    def test_keys_of_jsonl_come_in_the_order_of_their_first_use_and_digits_stay(self) -> None:
        specs, _ = read('{"prompt":"a","n":9007199254740993}\n{"prompt":"b","t":[1.50]}\n', "jsonl")
        table = self.table(specs, [])
        assert table.column_names[:3] == ["prompt", "n", "t"]
        assert table.column("n").to_pylist() == ["9007199254740993", None]

    def test_a_batch_without_anything_in_it_is_a_table_without_rows(self) -> None:
        assert self.table([], ["prompt"]).num_rows == 0

    def test_many_rows_come_in_groups(self) -> None:
        (spec,), columns = read("prompt\na cat\n", "csv")
        file = io.BytesIO()
        write_parquet(lambda: (view(spec) for _ in range(10_001)), columns, file)
        assert pyarrow.parquet.ParquetFile(io.BytesIO(file.getvalue())).num_row_groups == 2


def whole(file: IO[bytes]) -> None:
    file.write(b"all of it")


def failing(file: IO[bytes]) -> None:
    file.write(b"half of it")
    raise RuntimeError("the process meets its end")


class TestWholeFiles:
    """F12: exports appear whole or not at all."""

    def test_what_stood_there_stays_until_the_new_one_is_whole(self, tmp_path: Path) -> None:
        target = tmp_path / "out.csv"
        target.write_text("before")
        with pytest.raises(RuntimeError):
            write_whole(failing, target)
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"out.csv": "before"}

    def test_a_link_is_followed(self, tmp_path: Path) -> None:
        (tmp_path / "real.csv").write_text("before")
        (tmp_path / "link.csv").symlink_to("real.csv")
        write_whole(whole, tmp_path / "link.csv")
        assert (tmp_path / "link.csv").is_symlink()
        assert (tmp_path / "real.csv").read_text() == "all of it"

    def test_a_pipe_is_written_to_and_stays_one(self, tmp_path: Path) -> None:
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        try:
            write_whole(whole, pipe)
            assert os.read(reader, 100) == b"all of it"
        finally:
            os.close(reader)
        assert pipe.is_fifo()

    @pytest.mark.parametrize("name", ["out.csv", "new/folder/out.csv"])
    def test_it_can_be_read_by_whoever_may(self, tmp_path: Path, name: str) -> None:
        write_whole(whole, tmp_path / name)
        assert (tmp_path / name).stat().st_mode & 0o044 == 0o044

    def test_where_it_cannot_be_written_that_is_said(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        (tmp_path / "folder").mkdir()
        for target in (tmp_path / "file" / "out.csv", tmp_path / "folder"):
            with pytest.raises(DiskError, match="cannot be written"):
                write_whole(whole, target)
        assert {path.name for path in tmp_path.iterdir()} == {"file", "folder"}
