"""Templates: a column's value where it is meant, and nowhere else."""

from __future__ import annotations

import base64
import json
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.core.cells import CellFault
from runner.core.embedding import MAX_FILE_BYTES, check_size, embed
from runner.core.errors import Problem, UsageError
from runner.core.jsontext import JSON, Number, dump
from runner.core.manifest import JobSpec, ManifestOptions, read_manifest
from runner.core.template import FillFault, Template

FIELDS = {"prompt": "string", "seed": "integer", "width": "integer"}


def fill(template: object, columns: dict[str, JSON]) -> JSON:
    filled: JSON = json.loads(dump(Template.parse(json.dumps(template).encode()).fill(columns)))
    return filled


def read_csv(data: bytes, template: bytes) -> list[JobSpec | Problem]:
    options = ManifestOptions(format="csv", model="bfl/flux-2-pro", template=Template.parse(template))
    return list(read_manifest([data], options, lambda _model: FIELDS))


def bodies(data: bytes, template: bytes) -> list[bytes]:
    items = read_csv(data, template)
    assert all(isinstance(item, JobSpec) for item in items), items
    return [item.body for item in items if isinstance(item, JobSpec)]


def test_inside_a_longer_string_a_placeholder_is_text() -> None:
    columns: dict[str, JSON] = {"color": "red", "n": Number("1.10"), "on": True, "none": None}
    assert fill({"prompt": "{{n}} {{ color }} {{on}}{{none}}."}, columns) == {"prompt": "1.10 red true."}


@pytest.mark.parametrize(
    ("kind", "cell", "value"),
    [("int", "7", 7), ("float", "0.5", 0.5), ("bool", "True", True), ("json", '{"a":[1]}', {"a": [1]})],
)
def test_a_lone_placeholder_takes_the_type_it_names(kind: str, cell: str, value: object) -> None:
    assert fill({"deep": [{"x": "{{cell:" + kind + "}}"}]}, {"cell": cell}) == {"deep": [{"x": value}]}


def test_a_lone_placeholder_without_a_type_keeps_the_columns_own() -> None:
    assert fill({"a": "{{a}}", "b": "{{b}}"}, {"a": "7", "b": Number("7")}) == {"a": "7", "b": 7}


def test_an_empty_cell_leaves_a_lone_placeholder_out() -> None:
    assert fill({"a": "{{a}}", "l": ["{{a:int}}", 1], "t": "<{{a}}>"}, {"a": ""}) == {"l": [1], "t": "<>"}


def test_keys_are_not_filled_and_other_values_stay() -> None:
    assert fill({"{{a}}": [1, None, "}} {x}"]}, {"a": "b"}) == {"{{a}}": [1, None, "}} {x}"]}


def test_columns_are_listed_in_order_of_use() -> None:
    template = Template.parse(b'{"a":"{{x}} {{y:int}}","b":["{{x}}","{{ z }}"]}')
    assert template.columns == ("x", "y", "z")


def test_numbers_of_the_template_stay_as_written() -> None:
    assert dump(Template.parse(b'\xef\xbb\xbf{"a":1.10,"b":9007199254740993}').fill({})) == (
        '{"a":1.10,"b":9007199254740993}'
    )


def test_a_cell_of_the_wrong_type_names_its_column() -> None:
    with pytest.raises(FillFault, match="whole number") as caught:
        fill({"seed": "{{seed:int}}"}, {"seed": "1.23E+15"})
    assert caught.value.column == "seed"


def test_a_missing_column_lists_the_known_ones() -> None:
    with pytest.raises(FillFault) as caught:
        fill({"a": "{{x}}"}, {"y": "", "z": ""})
    assert caught.value.advice == "there are: y, z"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{\n "a": x}', "line 2, column 7: not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"a":1,"a":2}', "stands twice"),
        (b'{"a":NaN}', "NaN"),
        (b'{"a":\n"\x92"}', "line 2, byte 2: not UTF-8"),
        (b'{"a":{"b":["{{x"]}}', "/a/b/0"),
        (b'{"a":"{{}}"}', "/a"),
        (b'{"a":"{{x:integer}}"}', "'integer' is no type"),
        (b'{"a":' + b"[" * 150 + b"]" * 150 + b"}", "too deeply"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused_with_its_place(text: bytes, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        Template.parse(text)
    assert said in caught.value.message


def test_in_csv_a_field_of_the_body_takes_the_schemas_type() -> None:
    template = b'{"prompt":"a {{color}} {{product}}","seed":"{{seed}}","input":{"seed":"{{seed}}"}}'
    assert bodies(b"product,color,seed\nchair,red,7\n", template) == [
        b'{"prompt":"a red chair","seed":7,"input":{"seed":"7"}}'
    ]


def test_body_columns_go_over_the_template_and_plain_ones_do_not() -> None:
    template = b'{"prompt":"{{prompt}}!","width":1}'
    data = b"prompt,seed,body.width,body.x\ncat,7,512,\n"
    assert bodies(data, template) == [b'{"prompt":"cat!","width":512}']


def test_a_body_column_that_the_template_uses_is_the_templates() -> None:
    assert bodies(b"body.x\n7\n", b'{"prompt":"{{body.x}} cats"}') == [b'{"prompt":"7 cats"}']


def test_a_column_missing_from_the_header_is_one_problem_for_the_file() -> None:
    items = read_csv(b"product,Color\nchair,red\ntable,blue\n", b'{"prompt":"a {{color}} {{product}}"}')
    (problem,) = items
    assert isinstance(problem, Problem)
    assert problem.line == 1
    assert problem.advice == "the nearest is `Color`: write {{Color}} in the template"


def test_a_prompt_is_needed_only_where_the_template_uses_it() -> None:
    assert bodies(b"x,prompt\n1,\n", b'{"text":"{{x}}"}') == [b'{"text":"1"}']
    (problem,) = read_csv(b"x,prompt\n1,  \n", b'{"text":"{{x}} {{prompt}}"}')
    assert isinstance(problem, Problem)
    assert problem.field == "prompt"


@settings(deadline=None)
@given(cell=st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_nothing_in_a_cell_breaks_out_of_its_string(cell: str) -> None:
    columns: dict[str, JSON] = {"a": cell, "b": "never"}
    assert fill({"x": "{{a}}", "y": "<{{a}}>", "z": 1}, columns) == {"x": cell, "y": f"<{cell}>", "z": 1}


@settings(deadline=None)
@given(
    data=st.binary(max_size=60) | st.text(alphabet='{}":abx [],1', max_size=40).map(str.encode),
    wrap=st.booleans(),
)
def test_no_bytes_make_a_template_raise_anything_but_usage_errors(data: bytes, wrap: bool) -> None:
    try:
        template = Template.parse(b'{"a":"' + data + b'"}' if wrap else data)
    except UsageError:
        return
    filled = template.fill(dict.fromkeys(template.columns, "1"))
    assert set(filled) == {"a"} or not wrap


PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16


class TestLocalFiles:
    """`{{picture:base64}}` and `{{picture:data-uri}}`: the content of the file that a column names."""

    FILES: ClassVar = {"a.png": PNG, "empty.png": b"", "note.txt": b"a secret", "page.png": b"<html>no</html>"}

    def embed(self, name: str, form: str) -> str:
        return embed(self.FILES[name], name, form)

    def fill(self, template: object, columns: dict[str, JSON]) -> JSON:
        return Template.parse(json.dumps(template).encode()).fill(columns, None, self.embed)

    def test_a_lone_placeholder_becomes_the_files_base64_or_data_uri(self) -> None:
        text = base64.b64encode(PNG).decode()
        assert self.fill({"i": ["{{p:base64}}"], "u": "{{ p:data-uri }}"}, {"p": "a.png"}) == {
            "i": [text],
            "u": f"data:image/png;base64,{text}",
        }

    def test_inside_a_longer_string_it_is_part_of_the_text(self) -> None:
        text = base64.b64encode(PNG).decode()
        assert self.fill({"u": "x,{{p:base64}}"}, {"p": " a.png "}) == {"u": f"x,{text}"}

    def test_an_empty_cell_leaves_a_lone_one_out_and_is_an_error_inside_a_text(self) -> None:
        assert self.fill({"i": "{{p:base64}}"}, {"p": " "}) == {}
        with pytest.raises(FillFault, match="names no file"):
            self.fill({"i": "data:image/png;base64,{{p:base64}}"}, {"p": ""})

    @pytest.mark.parametrize(
        ("name", "why"),
        [("empty.png", "is empty"), ("note.txt", "is no picture"), ("page.png", "is no picture")],
    )
    def test_what_is_no_media_stays_here(self, name: str, why: str) -> None:
        with pytest.raises(FillFault, match=why) as raised:
            self.fill({"i": "{{p:base64}}"}, {"p": name})
        assert raised.value.column == "p"

    def test_a_file_that_fits_into_no_body_is_refused_by_its_size(self) -> None:
        with pytest.raises(CellFault, match=r"has 7,864,321 bytes; in a body of 10 MiB there is room for 7,864,320"):
            check_size(MAX_FILE_BYTES + 1, "big.png")

    def test_a_column_of_a_csv_may_name_the_form_in_its_header(self) -> None:
        options = ManifestOptions(format="csv", model="bfl/flux-2-pro", files=self.embed)
        (row,) = read_manifest([b"prompt,body.image:data-uri\ncat,a.png\n"], options, lambda _model: FIELDS)
        assert isinstance(row, JobSpec)
        assert json.loads(row.body)["image"].startswith("data:image/png;base64,")

    def test_a_row_whose_file_cannot_be_had_is_a_problem_of_that_line(self) -> None:
        template = Template.parse(b'{"prompt": "{{prompt}}", "image": "{{picture:base64}}"}')
        options = ManifestOptions(format="csv", model="bfl/flux-2-pro", template=template, files=self.embed)
        rows = list(read_manifest([b"prompt,picture\ncat,a.png\ndog,note.txt\n"], options, lambda _model: FIELDS))
        assert isinstance(rows[0], JobSpec)
        assert (rows[1].line, getattr(rows[1], "field", None)) == (3, "picture")
