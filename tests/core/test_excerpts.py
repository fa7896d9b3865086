"""The line that a problem speaks of, and carets at the place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.errors import Excerpt, Problem
from runner.core.excerpts import excerpts_of
from runner.core.manifest import ManifestOptions, read_manifest

WIDTH = 60


def excerpts(data: bytes, problems: list[Problem], options: ManifestOptions, width: int = WIDTH) -> list[str | None]:
    found = excerpts_of(lambda: iter([data]), options, problems, width)
    return [None if excerpt is None else drawn(excerpt) for excerpt in found]


def drawn(excerpt: Excerpt) -> str:
    """The text, and in brackets what is pointed at."""
    end = excerpt.start + excerpt.length
    return f"{excerpt.text[: excerpt.start]}[{excerpt.text[excerpt.start : end]}]{excerpt.text[end:]}"


def of_csv(data: bytes, encoding: str | None = None, delimiter: str = ",") -> list[str | None]:
    """The excerpts of all problems that reading this finds."""
    fields = {"prompt": "string", "width": "integer"}
    options = ManifestOptions("csv", model="bfl/flux-2-pro", encoding=encoding, delimiter=delimiter)
    found = read_manifest([data], options, lambda _model: fields)
    return excerpts(data, [item for item in found if isinstance(item, Problem)], options)


def of_jsonl(data: bytes) -> list[str | None]:
    options = ManifestOptions("jsonl", model="bfl/flux-2-pro")
    found = read_manifest([data], options, lambda _model: {"prompt": "string"})
    return excerpts(data, [item for item in found if isinstance(item, Problem)], options)


@pytest.mark.parametrize(
    ("row", "shown"),
    [
        ("a fox,abc", "a fox,[abc]"),
        ('"a ""red"" fox, running",abc', '"a ""red"" fox, running",[abc]'),
        ("漢字,abc", "漢字,[abc]"),
        ("\ta fox\t,abc", " a fox ,[abc]"),
        ("\x1b[31mred,abc", "\ufffd[31mred,[abc]"),
        ('"a fox"x,1', '"a fox"[x],1'),
        ("a fox", "[]a fox"),
    ],
    ids=["a cell", "quotes", "wide characters", "tabs", "control characters", "a byte", "a row without a place"],
)
def test_a_cell_is_pointed_at(row: str, shown: str) -> None:
    assert of_csv(f"prompt,width\n{row}\n".encode()) == [shown]


def test_a_column_is_found_by_the_name_that_the_header_has_for_it() -> None:
    data = b"prompt,body.width:int\na fox,1024\n"
    problem = Problem(2, "must be at most 4", field="body.width")
    assert excerpts(data, [problem], ManifestOptions("csv")) == ["a fox,[1024]"]


def test_an_empty_cell_is_pointed_at_where_it_should_be() -> None:
    assert of_csv(b"width,prompt,note\n1,,x\n") == ["1,[,]x"]


def test_a_cell_that_begins_on_a_later_line_leaves_the_line_without_carets() -> None:
    assert of_csv(b'prompt,width\n"a\nfox",abc\n') == ['[]"a']


def test_another_delimiter_separates_the_cells() -> None:
    assert of_csv(b"prompt;width\na, b;abc\n", delimiter=";") == ["a, b;[abc]"]


def test_a_byte_that_cannot_be_decoded_is_shown_as_no_character() -> None:
    assert of_csv("prompt\nä ".encode() + b"\xff fox\n") == ["ä [\ufffd] fox"]
    assert of_csv(b"prompt\na \x81 fox\n", encoding="cp1252") == ["a [\ufffd] fox"]


def test_bytes_are_those_of_the_files_encoding() -> None:
    data = 'prompt,width\n"ääää"x,1\n'
    assert of_csv(data.encode("cp1252"), encoding="cp1252") == ['"ääää"[x],1']
    assert of_csv(data.encode("utf-16"), encoding="utf-16") == ['"ääää"[x],1']


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ('{"prompt": "a", "id": "x y\\n"}', '{"prompt": "a", "id": ["x y\\n"]}'),
        ('{"prompt": "a",}', '{"prompt": "a",[}]'),
        ('{"prompt": {"a": [1, 2]}}', '{"prompt": [{"a": [1, 2]}]}'),
        ("[1, 2]", "[][1, 2]"),
    ],
)
def test_a_value_is_pointed_at(line: str, shown: str) -> None:
    assert of_jsonl(line.encode()) == [shown]


def test_a_field_within_a_body_is_found_by_its_last_name() -> None:
    data = b'{"body": {"options": {"size": "big"}}}'
    problem = Problem(1, "must be a whole number", field="body.options.size")
    assert excerpts(data, [problem], ManifestOptions("jsonl")) == ['{"body": {"options": {"size": ["big"]}}}']


def test_a_long_line_is_cut_around_the_place() -> None:
    (shown,) = of_csv(b"prompt,width,note\n" + b"a" * 500 + b",abc," + b"b" * 500 + b"\n")
    assert shown == "…" + "a" * 22 + ",[abc]," + "b" * 31 + "…"


def test_a_problem_of_the_whole_file_or_of_an_empty_line_has_none() -> None:
    problems = [Problem(None, "there are no rows"), Problem(2, "empty"), Problem(9, "beyond the end")]
    assert excerpts(b"prompt\n\na\n", problems, ManifestOptions("csv")) == [None, None, None]


def test_nothing_is_read_beyond_the_last_of_the_problems() -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b"prompt\n" * 1000

    found = excerpts_of(endless, ManifestOptions("csv"), [Problem(5000, "x")], WIDTH)
    assert found == [Excerpt(5000, "prompt", 0, 0)]


_PIECES = st.sampled_from(
    ['"', ",", ";", "\n", "\r", "\t", "a", "ä", "漢", "\0", "\x1b", "{", "}", ":", "prompt", "[", "1"]
)


@given(
    data=st.lists(_PIECES | st.text(max_size=3), max_size=60).map("".join),
    encoding=st.sampled_from([None, "cp1252", "utf-16", "utf-8"]),
    kind=st.sampled_from(["csv", "jsonl"]),
    line=st.integers(1, 6),
    byte=st.none() | st.integers(1, 80),
    field=st.none() | st.sampled_from(["prompt", "body.width", "a", ""]),
    width=st.integers(40, 80),
)
def test_whatever_the_file_holds_an_excerpt_fits_and_points_into_its_line(
    data: str, encoding: str | None, kind: str, line: int, byte: int | None, field: str | None, width: int
) -> None:
    options = ManifestOptions("csv" if kind == "csv" else "jsonl", encoding=encoding)
    raw = data.encode("utf-8", "surrogatepass")
    (found,) = excerpts_of(lambda: iter([raw]), options, [Problem(line, "x", field=field, byte=byte)], width)
    if found is not None:
        assert len(found.text) <= width
        assert 0 <= found.start <= found.start + found.length <= max(len(found.text), found.start)
        assert all(
            character.isprintable() or character in "\u2028\u2029\xad\ufffd" or ord(character) > 0x9F
            for character in found.text
        )
