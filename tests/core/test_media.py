"""What is found in a model's native output, and what is left alone."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.media import decode_inline, find_media, is_text_answer, read_pointer, why_empty
from runner.core.types import Document, MediaSource

HERE = Path(__file__).resolve().parent
#: Published examples that lie beside the checkout on some machines.
PUBLISHED = HERE.parents[2] / "shared" / "cases" / "model-outputs.jsonl"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(64))

Case = dict[str, Any]


def lines_of(path: Path) -> list[Case]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def as_json(output: object) -> Document:
    return Document(json.dumps(output).encode(), "application/json; charset=utf-8")


def primary(found: tuple[MediaSource, ...]) -> list[str]:
    return [source.pointer for source in found if not source.secondary]


def extra(found: tuple[MediaSource, ...]) -> list[str]:
    return [source.pointer for source in found if source.secondary]


class TestShapesOfOutputs:
    @pytest.mark.parametrize("case", [pytest.param(c, id=c["case"]) for c in lines_of(HERE / "model_outputs.jsonl")])
    def test_every_medium_is_found_in_document_order_and_nothing_else(self, case: Case) -> None:
        inputs = json.dumps(case["input"]).encode() if "input" in case else b""
        found = find_media(as_json(case["output"]), model=case.get("model", ""), inputs=inputs)
        assert primary(found) == case["primary"]
        assert extra(found) == case.get("secondary", [])

    def test_published_examples_come_out_exactly(self) -> None:
        # They lie beside the project; where they do not, our own of the same shapes above are what is tested.
        for case in lines_of(PUBLISHED):
            name = f"{case['model']} {case.get('variant', '')}"
            for inputs in (b"", json.dumps(case.get("input_example", {})).encode()):
                found = find_media(as_json(case["output_example"]), model=case["model"], inputs=inputs)
                assert sorted(primary(found) + extra(found)) == sorted(case["asset_pointers"]), name
                assert sorted(extra(found)) == sorted(case.get("secondary_pointers", [])), name

    def test_the_media_type_beside_a_file_is_kept(self) -> None:
        (found,) = find_media(as_json({"images": [{"url": "https://a.invalid/x", "content_type": "image/webp"}]}))
        assert found == MediaSource("/images/0/url", "https://a.invalid/x", declared_type="image/webp")

    def test_a_link_is_kept_letter_for_letter(self) -> None:
        link = "https://a.invalid/o/x%2Fy%40z.png?X-Sig=a%2Bb&e=1#f"
        assert find_media(as_json({"url": link}))[0].url == link

    def test_what_a_model_is_named_for_is_what_was_asked(self) -> None:
        output = as_json({"image": {"url": "https://a.invalid/a.png"}, "depth_map": {"url": "https://a.invalid/d.png"}})
        assert extra(find_media(output, model="maker/cut-out")) == ["/depth_map/url"]
        assert extra(find_media(output, model="maker/depth-anything")) == []
        clip = as_json({"audio_url": "https://a.invalid/a.mp3", "video_url": "https://a.invalid/v.mp4"})
        assert extra(find_media(clip, model="maker/text-to-video")) == ["/audio_url"]
        assert extra(find_media(clip, model="maker/text-to-music")) == ["/video_url"]

    @pytest.mark.parametrize("mode", ["custom", "select"])
    def test_what_the_caller_brought_by_its_mode_is_an_echo(self, mode: str) -> None:
        output = {"matte_mode": mode, "output": {"matte": "https://a.invalid/m.mp4", "clip": "https://a.invalid/c.mp4"}}
        assert primary(find_media(as_json(output))) == ["/output/clip"]


class TestEchoesOfTheRequest:
    def test_a_link_is_recognised_however_the_request_escapes_it(self) -> None:
        inputs = rb'{"image":"https:\/\/a.invalid\/in.png?a=1\u0026b=2"}'
        assert find_media(as_json({"image_url": "https://a.invalid/in.png?a=1&b=2"}), inputs=inputs) == ()

    def test_a_link_that_only_begins_alike_is_no_echo(self) -> None:
        inputs = json.dumps({"image": "https://a.invalid/in.png"}).encode()
        found = find_media(as_json({"image_url": "https://a.invalid/in.png?v=2"}), inputs=inputs)
        assert primary(found) == ["/image_url"]

    def test_a_request_that_is_not_json_still_names_its_links(self) -> None:
        inputs = b'--x\r\nname="image"\r\n\r\nhttps://a.invalid/in.png\r\n'
        assert find_media(as_json({"image_url": "https://a.invalid/in.png"}), inputs=inputs) == ()


class TestSchemaMarks:
    SCHEMA: ClassVar[Case] = {
        "$defs": {"Page": {"type": "string", "format": "uri"}},
        "type": "object",
        "properties": {
            "zebra": {"$ref": "#/$defs/Page"},
            "rows": {
                "type": "array",
                "items": {"anyOf": [{"type": "null"}, {"properties": {"q": {"format": "byte"}}}]},
            },
            "blob": {"contentEncoding": "base64", "contentMediaType": "audio/wav"},
            "status_url": {"format": "uri"},
        },
    }
    OUTPUT: ClassVar[Case] = {
        "zebra": "https://a.invalid/f/1",
        "rows": [{"q": "AAECAwQF"}],
        "blob": "AAECAwQFBgcI",
        "status_url": "https://a.invalid/s",
        "other": "https://a.invalid/f/2",
    }

    def test_marked_strings_count_under_any_name(self) -> None:
        found = find_media(as_json(self.OUTPUT), output_schema=self.SCHEMA)
        assert primary(found) == ["/zebra", "/rows/0/q", "/blob"]
        assert found[2].declared_type == "audio/wav"
        assert find_media(as_json(self.OUTPUT)) == ()

    def test_a_whole_openapi_document_serves_as_well(self) -> None:
        answer = {"200": {"headers": {"X": {"schema": {}}}, "content": {"application/json": {"schema": self.SCHEMA}}}}
        document = {"openapi": "3.1.0", "paths": {"/m": {"post": {"responses": answer}}}, "$defs": self.SCHEMA["$defs"]}
        assert len(find_media(as_json(self.OUTPUT), output_schema=document)) == 3

    def test_a_schema_that_refers_to_itself_ends(self) -> None:
        schema = {"$defs": {"N": {"properties": {"next_node": {"$ref": "#/$defs/N"}}}}, "$ref": "#/$defs/N"}
        assert find_media(as_json({"next_node": {"next_node": {}}}), output_schema=schema) == ()

    @pytest.mark.parametrize("schema", [{"$ref": "#/nowhere"}, {"properties": 3, "allOf": "x"}, {"paths": [1]}, {}])
    def test_a_broken_schema_is_as_good_as_none(self, schema: Case) -> None:
        assert primary(find_media(as_json({"url": "https://a.invalid/x.png"}), output_schema=schema)) == ["/url"]


class TestWholeBodies:
    def test_a_body_of_bytes_is_the_file(self) -> None:
        document = Document(PNG, "image/png")
        assert find_media(document) == (MediaSource(pointer="", url=None, declared_type="image/png"),)
        assert read_pointer(document, "") == PNG

    @pytest.mark.parametrize("content_type", ["application/octet-stream", "", "model/gltf+json"])
    def test_bytes_count_whatever_little_is_declared(self, content_type: str) -> None:
        assert len(find_media(Document(PNG, content_type))) == 1

    @pytest.mark.parametrize(
        ("body", "content_type"),
        [
            (b"", "image/png"),
            (b"hello", "text/plain"),
            (b"<html></html>", "text/html"),
            (b"<!doctype html><html>", "application/octet-stream"),
            (b"<Error><Code>AccessDenied</Code></Error>", "application/xml"),
            (b'{"url": "https://a.invalid/x.png"', "application/json"),
            (b"\xff\xfe\xfd", "application/json"),
            (b"[" * 100_000, "application/json"),
        ],
    )
    def test_words_pages_and_broken_documents_are_no_media(self, body: bytes, content_type: str) -> None:
        assert find_media(Document(body, content_type)) == ()

    @pytest.mark.parametrize("content_type", ["", "text/plain", "application/problem+json", "application/octet-stream"])
    def test_json_is_read_as_json_under_other_labels(self, content_type: str) -> None:
        body = b'\n {"url": "https://a.invalid/x.png"}'
        assert primary(find_media(Document(body, content_type))) == ["/url"]


class TestPointers:
    def test_tokens_are_unescaped_as_rfc_6901_says(self) -> None:
        document = as_json({"a/b": {"m~n": [10, {"": 20}]}})
        assert read_pointer(document, "/a~1b/m~0n/0") == 10
        assert read_pointer(document, "/a~1b/m~0n/1/") == 20
        assert read_pointer(document, "") == {"a/b": {"m~n": [10, {"": 20}]}}

    @pytest.mark.parametrize("pointer", ["/x", "/a/2", "/a/-", "/a/01", "/a/0/b", "/a/\u0661"])
    def test_nothing_there_is_a_lookup_error(self, pointer: str) -> None:
        with pytest.raises(LookupError, match="nothing stands at"):
            read_pointer(as_json({"a": [1, 2]}), pointer)

    def test_a_pointer_without_its_slash_is_malformed(self) -> None:
        with pytest.raises(ValueError, match="slash"):
            read_pointer(as_json({"a": 1}), "a")

    def test_a_body_that_is_not_json_has_no_members(self) -> None:
        with pytest.raises(ValueError, match="not JSON"):
            read_pointer(Document(PNG, "image/png"), "/a")


class TestInlineBytes:
    @given(st.binary(min_size=1, max_size=200), st.booleans(), st.booleans())
    def test_base64_of_either_alphabet_padded_or_not_comes_back(self, raw: bytes, urlsafe: bool, padded: bool) -> None:
        text = (base64.urlsafe_b64encode if urlsafe else base64.b64encode)(raw).decode()
        as_uri = f"data:image/png;base64,{text if padded else text.rstrip('=')}"
        assert decode_inline(as_uri) == (raw, "image/png")

    def test_a_line_break_every_76_characters_is_forgiven(self) -> None:
        assert decode_inline(base64.encodebytes(PNG * 4).decode())[0] == PNG * 4

    def test_hexadecimal_is_told_by_the_file_in_it(self) -> None:
        speech = b"ID3\x04" + bytes(range(100))
        assert decode_inline(speech.hex()) == (speech, None)
        # The same characters without a file in them are base64.
        assert decode_inline("abcdef12" * 8)[0] == base64.b64decode("abcdef12" * 8)

    def test_a_drawing_stands_as_it_is(self) -> None:
        drawing = '<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>'
        assert decode_inline(drawing) == (drawing.encode(), "image/svg+xml")

    def test_a_data_uri_may_be_percent_encoded(self) -> None:
        assert decode_inline("data:image/svg+xml,%3Csvg%2F%3E") == (b"<svg/>", "image/svg+xml")
        assert decode_inline("data:;base64,%2B%2B%2B%2B") == (b"\xfb\xef\xbe", None)

    @pytest.mark.parametrize(
        "junk",
        [
            "hello world",
            "a",
            "ab=c",
            "====",
            "aGVs*G8=",
            "aGVsbG8==",
            "a+b-",
            "data:image/png;base64",
            "gr\u00fc\u00dfe",
            "\ud800",
        ],
    )
    def test_junk_is_refused_with_a_reason(self, junk: str) -> None:
        with pytest.raises(ValueError, match=r"base64|data URI"):
            decode_inline(junk)

    def test_twelve_megabytes_are_found_and_decoded_at_once(self) -> None:
        raw = PNG + bytes(range(256)) * 48_000
        document = as_json({"data": [{"b64_json": base64.b64encode(raw).decode()}]})
        begun = time.perf_counter()
        (source,) = find_media(document, inputs=b'{"prompt": "x"}')
        value = read_pointer(document, source.pointer)
        assert isinstance(value, str)
        assert decode_inline(value)[0] == raw
        assert time.perf_counter() - begun < 5


class TestEmptyResults:
    @pytest.mark.parametrize(
        ("output", "reason"),
        [
            ({"promptFeedback": {"blockReason": "SAFETY"}}, "blockReason: SAFETY"),
            (
                {"response": {"raiMediaFilteredReasons": ["by policy"]}, "done": True},
                "raiMediaFilteredReasons: by policy",
            ),
            ({"candidates": [{"finishReason": "NO_IMAGE"}]}, "finishReason: NO_IMAGE"),
            ({"code": 1, "message": "no such voice"}, "message: no such voice"),
            ({"message": "SUCCEED", "data": {"task_status_msg": "too dark"}}, "task_status_msg: too dark"),
            ({"error": {"code": "x1", "message": "moderated"}}, "message: moderated"),
            ({"error": "late", "message": "other"}, "error: late"),
            ({"data": [{"is_image_safe": False, "prompt": "a cat"}]}, "is_image_safe: false"),
            ({"has_nsfw_concepts": [True], "images": []}, "has_nsfw_concepts: true"),
            ({"id": "x", "status": "Content Moderated", "result": None}, "status: Content Moderated"),
            ({"Response": {"ErrorCode": "", "ErrorMessage": "", "Status": "DONE"}}, None),
            ({"status": "completed", "finish_reason": "stop", "error": None}, None),
            ({}, None),
            ([], None),
        ],
    )
    def test_the_reason_the_output_gives_is_found(self, output: object, reason: str | None) -> None:
        assert why_empty(as_json(output)) == reason

    def test_a_reason_is_short_and_without_prompt_or_signature(self) -> None:
        prompt = "a very particular cat on a very particular mat"
        text = f"refused: {prompt}; see https://a.invalid/h?sig=SECRET \n" + "long " * 100
        reason = why_empty(as_json({"prompt": prompt, "message": text}))
        assert reason is not None
        assert len(reason) == 200
        assert "\n" not in reason
        assert "particular" not in reason
        assert "SECRET" not in reason

    def test_a_page_says_so(self) -> None:
        assert why_empty(Document(b"<html>", "text/html; charset=utf-8")) == "the answer is a web page"

    @pytest.mark.parametrize(
        ("document", "expected"),
        [
            (as_json({"content": [{"type": "text", "text": "ok"}]}), True),
            (as_json({"choices": [{"message": {"content": "ok"}}]}), True),
            (as_json({"candidates": [{"content": {"parts": [{"text": "ok"}]}}]}), True),
            (Document(b"ok", "text/plain"), True),
            (as_json({"content": []}), False),
            (as_json({"request": {"text": "say ok"}, "code": 1, "message": "no"}), False),
            (Document(b"<p>", "text/html"), False),
            (Document(b"{", "application/json"), False),
        ],
    )
    def test_a_text_models_answer_is_told_from_an_empty_result(self, document: Document, expected: bool) -> None:
        assert is_text_answer(document) is expected


names = st.sampled_from(
    [
        "url",
        "image",
        "images",
        "data",
        "b64_json",
        "text",
        "type",
        "role",
        "input",
        "status_url",
        "a/b~c",
        "",
        "video",
        "mime_type",
        "output",
        "thumbnail",
        "alpha_mode",
        "alpha",
        "glb",
    ]
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=20)
    | st.sampled_from(
        [
            "https://a.invalid/x.png",
            "gs://b/o.mp4",
            "data:image/png;base64,!",
            "PGJhc2U2ND4=",
            "https://[",
            "<svg",
            "custom",
            "image/png",
            base64.b64encode(PNG).decode(),
            PNG.hex(),
            "http://a\ud800/",
            "data:,",
        ]
    )
)
outputs = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=5), max_leaves=25
)


class TestAnyDocument:
    @given(outputs, outputs)
    def test_nothing_raises_and_every_pointer_leads_to_the_string_it_names(self, output: object, sent: object) -> None:
        document = as_json(output)
        found = find_media(document, inputs=json.dumps(sent).encode(), model="a/b")
        why_empty(document)
        is_text_answer(document)
        pointers = [source.pointer for source in found]
        assert len(set(pointers)) == len(pointers)
        for source in found:
            value = read_pointer(document, source.pointer)
            assert isinstance(value, str)
            assert source.url in (None, value)

    @given(st.binary(max_size=300), st.sampled_from(["", "application/json", "image/png", "text/plain", "x", ";"]))
    def test_no_body_raises(self, body: bytes, content_type: str) -> None:
        document = Document(body, content_type)
        for source in find_media(document):
            read_pointer(document, source.pointer)
        why_empty(document)
        is_text_answer(document)

    @given(st.text(max_size=100))
    def test_decoding_raises_nothing_but_value_errors(self, text: str) -> None:
        try:
            raw, _ = decode_inline(text)
        except ValueError:
            return
        assert isinstance(raw, bytes)
