"""CSV manifests: what people's spreadsheets write, byte by byte."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from encodings.aliases import aliases

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.core.errors import Problem, UsageError
from runner.core.inputs import InputFields
from runner.core.manifest import JobSpec, ManifestOptions, ReadReport, read_manifest

FLUX: InputFields = {
    "prompt": "string",
    "width": "integer",
    "seed": "integer",
    "guidance": "number",
    "raw": "boolean",
    "images": "array",
    "options": "object",
    "output_format": None,
}
MODEL = "bfl/flux-2-pro"


def read(
    data: bytes | Iterable[bytes],
    *,
    fields: InputFields | None = FLUX,
    model: str | None = MODEL,
    delimiter: str = ",",
    encoding: str | None = None,
    report: ReadReport | None = None,
) -> tuple[list[JobSpec], list[Problem]]:
    options = ManifestOptions(format="csv", model=model, delimiter=delimiter, encoding=encoding)
    chunks = [data] if isinstance(data, bytes) else data
    items = list(read_manifest(chunks, options, lambda _model: fields, report))
    return [i for i in items if isinstance(i, JobSpec)], [i for i in items if isinstance(i, Problem)]


def jobs(data: bytes, **options: object) -> list[JobSpec]:
    found, problems = read(data, **options)  # type: ignore[arg-type]
    assert problems == []
    return found


def problems(data: bytes, **options: object) -> list[Problem]:
    return read(data, **options)[1]  # type: ignore[arg-type]


def only_problem(data: bytes, **options: object) -> Problem:
    (problem,) = problems(data, **options)
    return problem


def test_a_row_becomes_a_job() -> None:
    data = "id,prompt,width,series\n1,a café,512,autumn\n".encode()
    assert jobs(data) == [
        JobSpec(
            row=1,
            line=2,
            custom_id="1",
            model=MODEL,
            body='{"prompt":"a café","width":512}'.encode(),
            columns='{"id":"1","prompt":"a café","width":"512","series":"autumn"}',
        )
    ]


def test_f1_a_utf8_mark_is_not_part_of_the_header() -> None:
    report = ReadReport()
    (job,) = jobs(b'\xef\xbb\xbf"id","prompt"\r\n1,cat\r\n', report=report)
    assert job.custom_id == "1"
    assert report.columns == ["id", "prompt"]


@pytest.mark.parametrize("codec", ["utf-16", "utf-32"])
def test_f1_a_marked_utf16_file_is_read(codec: str) -> None:
    data = "id,prompt\r\n1,naïve cat ✂\r\n".encode(codec)
    for size in (1, 3, 1000):
        found, wrong = read([data[i : i + size] for i in range(0, len(data), size)])
        assert wrong == []
        assert json.loads(found[0].body) == {"prompt": "naïve cat ✂"}


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_f1_an_encoding_that_names_its_byte_order_does_without_or_with_a_mark(codec: str) -> None:
    for text in ("prompt\ncat\n", "\ufeffprompt\ncat\n"):
        (job,) = jobs(text.encode(codec), encoding=codec)
        assert job.body == b'{"prompt":"cat"}'


def test_f1_a_mark_that_contradicts_the_encoding_is_said() -> None:
    problem = only_problem(b"\xef\xbb\xbfid,prompt\n1,cat\n", encoding="cp1252")
    assert "mark of utf-8" in problem.message
    assert problem.advice == "leave out --encoding"


def test_unmarked_utf16_is_one_problem() -> None:
    problem = only_problem("id,prompt\n1,cat\n2,dog\n".encode("utf-16-le"))
    assert "NUL" in problem.message
    assert "utf-16" in str(problem.advice)


F2 = b"id,prompt\r\n1,it\x92s a cat\r\n"


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_f2_invalid_utf8_is_named_by_line_and_byte_with_the_likely_encoding(size: int) -> None:
    found, (problem,) = read([F2[i : i + size] for i in range(0, len(F2), size)])
    assert found == []
    assert (problem.line, problem.byte) == (2, 5)
    assert "0x92 (byte 15 of the file" in problem.message
    assert "--encoding cp1252" in str(problem)


def test_f2_the_named_encoding_is_used() -> None:
    (job,) = jobs(F2, encoding="cp1252")
    assert json.loads(job.body) == {"prompt": "it’s a cat"}  # noqa: RUF001


def test_f2_every_line_that_cannot_be_decoded_is_listed() -> None:
    lines = [p.line for p in problems(b'prompt\n\x92\nfine\n"two\nl\x92nes"\n\xff\n')]
    assert lines == [2, 5, 6]


def test_f2_an_unknown_encoding_is_wrong_usage() -> None:
    for name in ("klingon", "base64", "unicode_escape"):
        with pytest.raises(UsageError, match="no text encoding"):
            read(b"prompt\ncat\n", encoding=name)


@pytest.mark.parametrize(("data", "other"), [(b"id;prompt\r\n1;a cat, sitting\r\n", ";"), (b"id\tprompt\n", r"\t")])
def test_f3_a_single_column_with_another_delimiter_in_it_is_not_guessed_at(data: bytes, other: str) -> None:
    problem = only_problem(data)
    assert problem.line == 1
    assert "the only column is `id" in problem.message
    assert problem.advice == f"try --delimiter '{other}'"


@pytest.mark.parametrize("first", [b"sep=;", b'"sep=;"'])
def test_f3_excels_hint_is_recognised(first: bytes) -> None:
    data = first + b"\r\nid;prompt\r\n1;a cat, sitting\r\n"
    problem = only_problem(data)
    assert "Excel's hint `sep=;`" in problem.message
    assert problem.advice == "add --delimiter ';'"
    (job,) = jobs(data, delimiter=";")
    assert (job.line, job.body) == (3, b'{"prompt":"a cat, sitting"}')


def test_a_tab_can_be_typed_as_backslash_t() -> None:
    (job,) = jobs(b"id\tprompt\n1\tcat\n", delimiter=r"\t")
    assert job.custom_id == "1"


@pytest.mark.parametrize("delimiter", ["", ";;", '"', "\n"])
def test_a_delimiter_is_one_character(delimiter: str) -> None:
    with pytest.raises(UsageError, match="delimiter"):
        read(b"prompt\n", delimiter=delimiter)


def test_f4_all_wrong_field_counts_are_listed() -> None:
    found = problems(b"id,prompt,seed\n1,a cat, sitting,7\n2,dog\n")
    assert [(p.line, p.message) for p in found] == [
        (2, "4 fields, the header has 3"),
        (3, "2 fields, the header has 3"),
    ]


def test_f5_blank_rows_are_counted_and_a_blank_prompt_is_an_error() -> None:
    report = ReadReport()
    found, (problem,) = read(b"id,prompt\n1,cat\n,\n , \n\n3,   \n", report=report)
    assert [job.custom_id for job in found] == ["1"]
    assert report.blank_rows == 3
    assert report.rows == 2
    assert (problem.line, problem.field) == (6, "prompt")


def test_f6_ids_keep_zeros_and_words_stay_words() -> None:
    first, second = jobs(b"id,prompt,seed\n007,NA,1577134800018226901\n008,null,\n")
    assert (first.custom_id, first.body) == ("007", b'{"prompt":"NA","seed":1577134800018226901}')
    assert (second.custom_id, second.body) == ("008", b'{"prompt":"null"}')


def test_f7_headers_are_trimmed_and_the_nearest_match_is_named() -> None:
    problem = only_problem(b"id, Prompt\xc2\xa0\n1, cat\n")
    assert problem.line == 1
    assert problem.advice == "the nearest is `Prompt`: rename it to `prompt`"


def test_f7_cells_keep_their_spaces() -> None:
    (job,) = jobs(b"id, prompt\xc2\xa0\n1, cat\n")
    assert job.body == b'{"prompt":" cat"}'


def test_a_column_that_differs_in_case_only_is_hinted_at() -> None:
    report = ReadReport()
    (job,) = jobs(b"prompt,Seed\ncat,7\n", report=report)
    assert job.body == b'{"prompt":"cat"}'
    assert report.hints == [f"column `Seed` is kept as metadata; `seed` would have a meaning for {MODEL}"]


def test_f9_duplicate_ids_are_refused_with_both_lines() -> None:
    problem = only_problem(b"id,prompt\na,cat\nb,dog\na,cow\n")
    assert (problem.line, problem.message) == (4, "the id 'a' is used on line 2 already")


def test_f9_an_id_that_another_row_gets_by_default_is_a_duplicate() -> None:
    assert only_problem(b"id,prompt\nrow-2,cat\n,dog\n").line == 3


def test_f9_duplicates_are_found_in_a_long_file() -> None:
    rows = [f"p{n},cat" for n in range(5000)]
    data = "\n".join(["id,prompt", *rows, "p17,dog", "p4999,dog"]).encode()
    assert [p.message for p in problems(data)] == [
        "the id 'p17' is used on line 19 already",
        "the id 'p4999' is used on line 5001 already",
    ]


def test_f10_a_seed_that_a_spreadsheet_has_cut_is_refused() -> None:
    problem = only_problem(b"id,prompt,seed\n1,cat,1.23E+15\n")
    assert (problem.line, problem.field) == (2, "seed")
    assert "spreadsheet" in problem.message
    assert "as text" in str(problem.advice)


@pytest.mark.parametrize("seed", ["1000000000000000", "9007199254740993", "-5", "0"])
def test_f10_integers_are_sent_digit_for_digit(seed: str) -> None:
    (job,) = jobs(f"prompt,seed\ncat,{seed}\n".encode())
    assert job.body == f'{{"prompt":"cat","seed":{seed}}}'.encode()


@pytest.mark.parametrize(
    ("column", "cell", "sent"),
    [
        ("width", " 512 ", "512"),
        ("width", "0512", "512"),
        ("guidance", "1.10", "1.10"),
        ("guidance", "1e5", "1e5"),
        ("raw", "TRUE", "true"),
        ("images", '"[""a"", 1.0]"', '["a",1.0]'),
        ("options", '"{""a"": {}}"', '{"a":{}}'),
        ("output_format", "png", '"png"'),
        ("body.width", "512", "512"),
        ("body.strange", "7", '"7"'),
        ("body.strange:int", "7", "7"),
        ("body.strange:float", "7.50", "7.50"),
        ("body.strange:bool", "false", "false"),
        ("body.strange:json", "null", "null"),
        ("body.a.b", "x", '"x"'),
        ("seed:int", "7", "7"),
    ],
)
def test_a_cell_takes_the_type_of_its_field(column: str, cell: str, sent: str) -> None:
    (job,) = jobs(f"prompt,{column}\ncat,{cell}\n".encode())
    field = column.removeprefix("body.").split(":")[0]
    assert job.body.decode() == f'{{"prompt":"cat","{field}":{sent}}}'


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("width", "wide"),
        ("width", "7.0"),
        ("width", '"1,000"'),
        ("width", "٣"),
        ("guidance", "nan"),
        ("guidance", "1e999"),
        ("body.seed:int", "9" * 400),
        ("body.seed:int", "9" * 5000),
        ("guidance", '"0,5"'),
        ("raw", "yes"),
        ("images", "a.png"),
        ("images", "{}"),
        ("options", "[]"),
        ("options", "{"),
        ("body.x:json", "NaN"),
        ("body.x:json", '"{""a"":1,""a"":2}"'),
    ],
)
def test_a_cell_that_has_not_the_type_of_its_field_is_a_problem(column: str, cell: str) -> None:
    problem = only_problem(f"prompt,{column}\ncat,{cell}\n".encode())
    assert (problem.line, problem.field) == (2, column)


def test_every_bad_cell_of_a_row_is_listed() -> None:
    found = problems(b"prompt,width,seed\ncat,a,b\n")
    assert [p.field for p in found] == ["width", "seed"]


def test_without_a_schema_only_body_columns_go_into_the_body() -> None:
    (job,) = jobs(b"prompt,seed,body.seed\ncat,7,8\n", fields=None)
    assert job.body == b'{"prompt":"cat","seed":"8"}'


def test_a_gemini_model_takes_contents() -> None:
    data = b"prompt,model,body.generationConfig:json\ncat,vertexai/gemini-3-pro-image,{}\n"
    (job,) = jobs(data, fields=None)
    assert json.loads(job.body) == {
        "contents": [{"role": "user", "parts": [{"text": "cat"}]}],
        "generationConfig": {},
    }


def test_a_prompt_may_come_as_a_body_column() -> None:
    assert jobs(b"body.prompt\ncat\n")[0].body == b'{"prompt":"cat"}'
    assert only_problem(b"id,body.prompt\n1,  \n").line == 2


@pytest.mark.parametrize("header", [b"prompt,body.prompt", b"prompt,seed,body.seed", b"prompt,body.x,body.x:int"])
def test_two_columns_for_one_field_are_refused_once(header: bytes) -> None:
    row = b",".join([b"1"] * len(header.split(b",")))
    problem = only_problem(header + b"\n" + row + b"\n" + row + b"\n")
    assert "so does" in problem.message


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b"prompt,id,id", "more than once: `id`"),
        (b"prompt,,id", "column 2 has no name"),
        (b"prompt,body.x:integer", "'integer' is no type"),
        (b"prompt,body.", "no field"),
        (b"prompt,body.:int", "no field"),
        (b"name,text", "no column `prompt`"),
    ],
)
def test_a_header_that_cannot_be_meant_is_one_problem(header: bytes, said: str) -> None:
    problem = only_problem(header + b"\na,b,c\na,b,c\n")
    assert said in problem.message


def test_models_come_from_the_row_or_by_default() -> None:
    report = ReadReport()
    data = b"prompt,model\ncat,openai/gpt-image-2\ndog,\ncow, openai/gpt-image-2 \n"
    assert [job.model for job in jobs(data, report=report)] == ["openai/gpt-image-2", MODEL, "openai/gpt-image-2"]
    assert report.models == {"openai/gpt-image-2": 2, MODEL: 3}


def test_a_row_without_any_model_is_told_what_to_type() -> None:
    assert only_problem(b"prompt\ncat\ndog\n", model=None).advice == "name one with --model"
    problem = only_problem(b"prompt,model\ncat,bfl/flux-2-pro\ndog,\n", model=None)
    assert (problem.line, problem.field, problem.advice) == (3, "model", "name one with --model")


@pytest.mark.parametrize("model", ["flux", "BFL/flux", "bfl/flux/2", "bfl/-flux", "a/" + "b" * 192])
def test_a_model_id_has_the_contracts_form(model: str) -> None:
    assert only_problem(f"prompt,model\ncat,{model}\n".encode()).field == "model"
    with pytest.raises(UsageError):
        read(b"prompt\ncat\n", model=model)


def test_line_numbers_are_physical_with_line_breaks_in_cells() -> None:
    found = jobs(b'prompt\n"a\nb"\n\n"c\r\nd\re"\nf\n')
    assert [job.line for job in found] == [2, 5, 8]
    assert [json.loads(job.body)["prompt"] for job in found] == ["a\nb", "c\r\nd\re", "f"]


def test_old_mac_line_ends_are_line_ends() -> None:
    assert [job.line for job in jobs(b"prompt\rcat\rdog")] == [2, 3]


def test_a_quote_never_closed_is_named_where_it_opens() -> None:
    problem = only_problem(b'prompt,seed\ncat,1\n"dog,2\ncow,3\n')
    assert (problem.line, problem.message) == (3, "the quote opened here is never closed")


def test_characters_after_a_closing_quote_are_refused() -> None:
    first, second = problems(b'prompt,seed\n"cat"s,1\nfine,2\n"multi\nline" ,3\n')
    assert (first.line, first.byte) == (2, 6)
    assert (second.line, second.byte) == (5, 6)
    assert "opened on line 4" in second.message


def test_quotes_inside_an_unquoted_cell_are_text() -> None:
    assert json.loads(jobs(b'prompt\na 5" pipe\n')[0].body) == {"prompt": 'a 5" pipe'}


def test_a_nul_byte_is_a_problem_of_its_line() -> None:
    problem = only_problem(b"prompt\nc\x00t\ndog\n")
    assert (problem.line, problem.byte) == (2, 2)


@pytest.mark.parametrize("data", [b"", b"\n \n", b"prompt\n", b"prompt\n\n  \n", b"\xef\xbb\xbf"])
def test_a_manifest_without_rows_is_a_problem(data: bytes) -> None:
    only_problem(data)


def test_a_body_above_the_routers_limit_is_a_problem() -> None:
    cell = "x" * (10 * 2**20)
    problem = only_problem(f'prompt\n"{cell}"\ncat\n'.encode())
    assert problem.line == 2
    assert "10485760" in problem.message


def test_f11_a_line_of_fifty_megabytes_is_a_problem_and_the_next_is_read() -> None:
    chunks = [b"prompt\n", *[b"x" * 2**20] * 50, b"\ncat\n\x92\n"]
    found, (long, undecodable) = read(chunks)
    assert [job.line for job in found] == [3]
    assert long.line == 2
    assert undecodable.line == 4
    assert f"byte {7 + 50 * 2**20 + 5} of the file" in undecodable.message


def test_f11_a_quote_left_open_ends_before_it_fills_the_memory() -> None:
    asked = 0

    def endless() -> Iterable[bytes]:
        nonlocal asked
        yield b'prompt\n"'
        while True:
            asked += 1
            yield (b"x" * 1023 + b"\n") * 1024

    _, (problem,) = read(endless())
    assert problem.line == 2
    assert asked < 20


@pytest.mark.parametrize("custom_id", ["x" * 513, '"a\nb"'])
def test_an_id_can_be_stored_and_shown(custom_id: str) -> None:
    assert only_problem(f"id,prompt\n{custom_id},cat\n".encode()).field == "id"


def test_all_problems_are_counted_and_the_first_hundred_kept() -> None:
    report = ReadReport()
    assert len(problems(b"prompt,seed\n" + b"cat,x\n" * 250, report=report)) == 250
    assert report.problem_count == 250
    assert len(report.problems) == 100


def test_the_same_bytes_in_any_pieces_read_the_same() -> None:
    data = 'id,prompt\r\n1,"a ""café"",\r\nwet"\r\n2,✂\r\n'.encode()
    whole = jobs(data)
    for size in range(1, len(data)):
        assert read([data[i : i + size] for i in range(0, len(data), size)]) == (whole, [])


_CELL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)


@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(_CELL.map("p".__add__), _CELL, _CELL), min_size=1, max_size=8),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    size=st.integers(1, 50),
)
def test_what_pythons_writer_writes_is_read_back_equal(rows: list[tuple[str, str, str]], end: str, size: int) -> None:
    out = io.StringIO(newline="")
    # Up to Python 3.12 the writer leaves line breaks other than its own without quotes.
    writer = csv.writer(out, lineterminator=end, quoting=csv.QUOTE_MINIMAL if end == "\r\n" else csv.QUOTE_ALL)
    writer.writerow(["prompt", "first", "second"])
    writer.writerows(rows)
    data = out.getvalue().encode()
    found, wrong = read([data[i : i + size] for i in range(0, len(data), size)])
    assert wrong == []
    assert [tuple(json.loads(job.columns).values()) for job in found] == rows
    assert [json.loads(job.body)["prompt"] for job in found] == [row[0] for row in rows]


def test_every_encoding_that_python_knows_reads_or_is_refused() -> None:
    for name in sorted(set(aliases.values())):
        try:
            found, wrong = read(b"prompt\ncat\n", encoding=name)
        except UsageError:
            continue
        assert found or wrong


@settings(deadline=None)
@given(
    data=st.binary(max_size=200) | st.text(alphabet='ab,"\r\n\x00 é', max_size=60).map(str.encode),
    header=st.sampled_from([b"", b"id,prompt,seed,body.x:json\n", b"prompt\n"]),
    encoding=st.sampled_from([None, "cp1252", "utf-16", "shift_jis", "utf-7", "iso2022_jp"]),
)
def test_no_bytes_make_the_reader_raise(data: bytes, header: bytes, encoding: str | None) -> None:
    found, wrong = read(header + data, encoding=encoding)
    assert found or wrong
    for job in found:
        assert "prompt" in json.loads(job.body)
