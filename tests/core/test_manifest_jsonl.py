"""JSONL manifests: every bad line said, every number as written."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.core.errors import Problem
from runner.core.inputs import InputFields
from runner.core.manifest import JobSpec, ManifestOptions, ReadReport, Template, read_manifest

FLUX: InputFields = {"prompt": "string", "width": "integer", "seed": "integer"}
MODEL = "bfl/flux-2-pro"


def read(
    data: bytes | Iterable[bytes],
    *,
    fields: InputFields | None = FLUX,
    model: str | None = MODEL,
    template: Template | None = None,
    report: ReadReport | None = None,
) -> tuple[list[JobSpec], list[Problem]]:
    options = ManifestOptions(format="jsonl", model=model, template=template)
    chunks = [data] if isinstance(data, bytes) else data
    items = list(read_manifest(chunks, options, lambda _model: fields, report))
    return [i for i in items if isinstance(i, JobSpec)], [i for i in items if isinstance(i, Problem)]


def jobs(data: bytes, **options: object) -> list[JobSpec]:
    found, problems = read(data, **options)  # type: ignore[arg-type]
    assert problems == []
    return found


def only_problem(data: bytes, **options: object) -> Problem:
    _, (problem,) = read(data, **options)  # type: ignore[arg-type]
    return problem


def test_prompt_and_input_fields_make_the_body_and_the_rest_is_metadata() -> None:
    line = '{"id": "a", "prompt": "café", "width": 512, "series": [1.50], "body.extra": {"x": null}}'
    assert jobs(line.encode()) == [
        JobSpec(
            row=1,
            line=1,
            custom_id="a",
            model=MODEL,
            body='{"prompt":"café","width":512,"extra":{"x":null}}'.encode(),
            columns=line,
        )
    ]


def test_a_body_is_sent_as_it_is() -> None:
    line = b'{"prompt": "for me", "body": {"b": 1.10, "a": [1e5, null, true], "n": 9007199254740993}}'
    (job,) = jobs(line)
    assert job.body == b'{"b":1.10,"a":[1e5,null,true],"n":9007199254740993}'


def test_f1_a_mark_does_not_lose_the_first_line() -> None:
    assert len(jobs(b'\xef\xbb\xbf{"prompt":"cat"}\n{"prompt":"dog"}\n')) == 2


def test_f2_lines_that_cannot_be_decoded_are_listed() -> None:
    found, problems = read(b'{"prompt":"cat"}\n{"prompt":"\x92"}\n\xff\n{"prompt":"dog"}\n')
    assert len(found) == 2
    assert [(p.line, p.byte) for p in problems] == [(2, 12), (3, 1)]


def test_f8_every_bad_line_is_listed_with_its_number() -> None:
    lines = [b"[1]", b"null", b'{"prompt":"a"} {"prompt":"b"}', b'{"id":"3",}', b'{"prompt":"fine"}', b"7"]
    found, problems = read(b"\n".join(lines))
    assert [job.line for job in found] == [5]
    assert [p.line for p in problems] == [1, 2, 3, 4, 6]
    assert "something follows" in problems[2].message
    assert problems[2].byte == 16


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([{"prompt": "cat"}, {"prompt": "dog"}], indent=2),
        '[{"prompt": "cat"},\n {"prompt": "dog"}]\n',
        json.dumps({"prompt": "cat"}, indent=2),
    ],
)
def test_f8_a_document_over_many_lines_is_one_clear_message(text: str) -> None:
    problem = only_problem(b"\n" + text.encode())
    assert problem.line == 2
    assert "over many lines" in problem.message
    assert "jq -c" in str(problem.advice)


def test_f8_line_ends_blank_lines_and_a_missing_last_line_end_are_fine() -> None:
    report = ReadReport()
    found = jobs(b'{"prompt":"cat"}\r\n\r\n  \n{"prompt":"dog"}', report=report)
    assert [(job.row, job.line) for job in found] == [(1, 1), (2, 4)]
    assert report.blank_rows == 2


def test_f9_a_number_and_its_text_are_the_same_id() -> None:
    problem = only_problem(b'{"id":1,"prompt":"a"}\n{"id":"1","prompt":"b"}\n')
    assert (problem.line, problem.message) == (2, "the id '1' is used on line 1 already")


def test_f9_two_batches_may_use_the_same_ids() -> None:
    for _ in range(2):
        assert jobs(b'{"id":"a","prompt":"cat"}')[0].custom_id == "a"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 400])
@pytest.mark.parametrize("key", ["seed", "note"])
def test_f10_what_is_no_number_is_a_line_error(key: str, number: str) -> None:
    problem = only_problem(f'{{"prompt":"cat","{key}":{number}}}\n'.encode())
    assert problem.line == 1
    assert number[:40] in problem.message


@pytest.mark.parametrize("number", ["1000000000000000", "9007199254740993", "1.10", "1e5", "-0", "1" * 300])
def test_f10_numbers_are_sent_digit_for_digit(number: str) -> None:
    (job,) = jobs(f'{{"prompt":"cat","seed":{number}}}'.encode())
    assert job.body == f'{{"prompt":"cat","seed":{number}}}'.encode()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"prompt":"\\ud800"}', "half a character"),
        (b'{"prompt":"cat","x":"\\udc00"}', "half a character"),
        (b'{"prompt":"cat","prompt":"dog"}', "stands twice"),
        (b'{"body":{"a":{"b":1,"b":1}}}', "stands twice"),
        (b'{"prompt":"cat","x":' + b"[" * 5000 + b"]" * 5000 + b"}", "too deeply"),
        (b'{"body":{"x":' + b"[" * 150 + b"]" * 150 + b"}}", "too deeply"),
        (b'{"body":[]}', "not an object"),
        (b'{"body":{"prompt":" "}}', "empty"),
        (b'{"body":{},"body.x":1}', "has no place"),
        (b'{"prompt":"cat","body.x:int":1}', "no type"),
        (b'{"prompt":"cat","seed":1,"body.seed":2}', "twice"),
        (b'{"prompt":"cat","body.prompt":"dog"}', "both"),
        (b'{"prompt":7}', "not a text"),
        (b'{"prompt":"  "}', "empty"),
        (b'{"id":"a"}', "empty or missing"),
        (b'{"id":true,"prompt":"cat"}', "not a text"),
        (b'{"id":"a\\u0000","prompt":"cat"}', "control characters"),
        (b'{"model":7,"prompt":"cat"}', "not a text"),
        (b'{"model":"flux","prompt":"cat"}', "no model id"),
    ],
)
def test_what_cannot_be_sent_is_said(line: bytes, said: str) -> None:
    found, problems = read(line)
    assert found == []
    assert said in problems[0].message
    assert problems[0].line == 1


def test_a_pair_of_surrogate_escapes_is_one_character() -> None:
    assert json.loads(jobs(b'{"prompt":"\\ud83d\\ude00"}')[0].body) == {"prompt": "\U0001f600"}


def test_a_null_leaves_the_field_out() -> None:
    assert jobs(b'{"id":null,"prompt":"cat","seed":null}')[0].body == b'{"prompt":"cat"}'


def test_a_row_without_any_model_is_told_what_to_type() -> None:
    assert only_problem(b'{"prompt":"cat"}', model=None).advice == "name one with --model"


def test_a_gemini_model_takes_contents() -> None:
    (job,) = jobs(b'{"model":"vertexai/gemini-3-pro-image","prompt":"cat"}', fields=None)
    assert job.body == b'{"contents":[{"role":"user","parts":[{"text":"cat"}]}]}'


def test_a_template_keeps_the_types_of_the_row() -> None:
    template = Template.parse(b'{"prompt":"{{n}} {{what}}s","n":"{{n}}","on":"{{on}}","seed":"{{seed:int}}"}')
    (job,) = jobs(b'{"n":2.50,"what":"cat","on":false,"seed":"7"}', template=template)
    assert job.body == b'{"prompt":"2.50 cats","n":2.50,"on":false,"seed":7}'


def test_a_key_that_the_template_needs_is_missed_by_line() -> None:
    template = Template.parse(b'{"prompt":"a {{color}} chair"}')
    problem = only_problem(b'{"color":"red"}\n{"colour":"red"}\n', template=template)
    assert (problem.line, problem.field) == (2, "color")
    assert "colour" in str(problem.advice)


def test_a_rows_own_body_needs_no_template() -> None:
    template = Template.parse(b'{"prompt":"a {{color}} chair"}')
    assert jobs(b'{"body":{"x":1}}', template=template)[0].body == b'{"x":1}'


@pytest.mark.parametrize("data", [b"", b"\n\n  \r\n", b"\xef\xbb\xbf"])
def test_a_manifest_without_rows_is_a_problem(data: bytes) -> None:
    assert "no rows" in only_problem(data).message


_NUMBER = st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?", fullmatch=True)
_JSON = st.recursive(
    _NUMBER | st.text(max_size=8).map(lambda text: json.dumps(text, ensure_ascii=False)) | st.just("null"),
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda items: f"[{','.join(items)}]")
        | st.lists(inner, max_size=4).map(
            lambda items: "{" + ",".join(f'"k{n}":{item}' for n, item in enumerate(items)) + "}"
        )
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(values=st.lists(_JSON, min_size=1, max_size=4))
def test_bodies_come_out_byte_for_byte(values: list[str]) -> None:
    bodies = [f'{{"value":{value}}}' for value in values]
    data = "".join(f'{{ "body" : {body} }}\n' for body in bodies).encode()
    assert [job.body.decode() for job in jobs(data)] == bodies


@settings(deadline=None)
@given(data=st.binary(max_size=120) | st.text(alphabet='{}[]":,\\u1e9d8 \nprompt', max_size=60).map(str.encode))
def test_no_bytes_make_the_reader_raise(data: bytes) -> None:
    found, wrong = read(data)
    assert found or wrong
