"""What files are called, by their bytes first; and the names they are given."""

from __future__ import annotations

import re
import struct
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.filenames import NameFault, NameTemplate, asset_name
from runner.core.filetypes import FileType, choose_type, looks_like_error_page, sniff, url_extension

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF"
HTML = b"<!DOCTYPE html><html><body>Sorry</body></html>"
XML_ERROR = b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>'
FACET = struct.pack("<12fH", 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0)


def zip_of(name: bytes, rest: bytes = b"") -> bytes:
    return b"PK\x03\x04" + bytes(22) + len(name).to_bytes(2, "little") + b"\0\0" + name + rest


def iso(brand: bytes, *compatible: bytes) -> bytes:
    size = 16 + 4 * len(compatible)
    return size.to_bytes(4, "big") + b"ftyp" + brand + bytes(4) + b"".join(compatible) + b"\0\0\0\x08mdat"


EXAMPLES = {
    "png": PNG,
    "jpg": JPEG,
    "gif": b"GIF89a\x01\x00",
    "webp": b"RIFF\x10\0\0\0WEBPVP8 ",
    "avif": iso(b"avif", b"mif1"),
    "heic": iso(b"mif1", b"heic"),
    "heif": iso(b"mif1"),
    "svg": b'<?xml version="1.0"?>\n<!-- made -->\n<!DOCTYPE svg PUBLIC "a" "b">\n<svg xmlns="x"></svg>',
    "bmp": b"BM\x46\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0",
    "tiff": b"II*\x00\x08\0\0\0",
    "psd": b"8BPS\x00\x01",
    "mp4": iso(b"isom", b"mp42"),
    "mov": iso(b"qt  "),
    "m4a": iso(b"M4A "),
    "m4v": iso(b"M4V "),
    "webm": b"\x1a\x45\xdf\xa3\x9f\x42\x82\x84webm",
    "mkv": b"\x1a\x45\xdf\xa3\xa3\x42\x82\x88matroska",
    "avi": b"RIFF\x10\0\0\0AVI LIST",
    "mp3": b"\xff\xfb\x90\x64\x00\x00\x00\x00",
    "wav": b"RIFF\x10\0\0\0WAVEfmt ",
    "flac": b"fLaC\0\0\0\x22",
    "ogg": b"OggS\0\x02" + bytes(22) + b"\x01vorbis",
    "opus": b"OggS\0\x02" + bytes(22) + b"OpusHead",
    "aac": b"\xff\xf1\x50\x80\x01\x7f\xfc" + bytes(4) + b"\xff\xf1",
    "aiff": b"FORM\0\0\0\x10AIFFCOMM",
    "glb": b"glTF\x02\0\0\0\x10\0\0\0",
    "gltf": b'{"asset": {"version": "2.0"}, "meshes": []}',
    "fbx": b"Kaydara FBX Binary  \x00\x1a\x00",
    "obj": b"# made by hand\nmtllib a.mtl\nv 0.0 1.0 2.0\n",
    "mtl": b"# material\nnewmtl skin\nKd 1 1 1\n",
    "usdz": zip_of(b"scene.usdc"),
    "3mf": zip_of(b"[Content_Types].xml", b"...3D/3dmodel.model"),
    "zip": zip_of(b"a.png"),
    "ply": b"ply\nformat ascii 1.0\n",
    "stl": b"made".ljust(80, b"\0") + (2).to_bytes(4, "little") + FACET * 2,
    "pdf": b"%PDF-1.7\n",
    "html": HTML,
    "xml": XML_ERROR,
}


class TestSniffing:
    @pytest.mark.parametrize("extension", EXAMPLES)
    def test_the_first_bytes_tell(self, extension: str) -> None:
        found = sniff(EXAMPLES[extension])
        assert found is not None
        assert found.extension == extension

    def test_quiet_samples_are_no_frames(self) -> None:
        assert sniff(b"\xff\xf1\x00\x05\xff\xf9\x00\x02" * 20) is None

    def test_other_ways_to_begin(self) -> None:
        assert sniff(b"ID3\x04\0") == FileType("audio/mpeg", "mp3")
        assert sniff(b"solid cube\n facet normal 0 0 1\n") == FileType("model/stl", "stl")
        assert sniff(b"\xef\xbb\xbf  <svg viewBox='0 0 1 1'>") == FileType("image/svg+xml", "svg")

    @pytest.mark.parametrize(
        "head", [b"", b"\0" * 500, b"hello", b"{}", b"<base64>", b"\xff\xfeh\0i\0", b"BM once", b"# a note\n"]
    )
    def test_bytes_that_say_nothing(self, head: bytes) -> None:
        assert sniff(head) is None

    @given(
        st.binary(max_size=600) | st.builds(lambda a, b: a + b, st.sampled_from(list(EXAMPLES.values())), st.binary())
    )
    def test_no_bytes_raise(self, head: bytes) -> None:
        sniff(head)
        looks_like_error_page(head, "image/png")

    @given(st.binary(max_size=300), st.text(max_size=40) | st.none(), st.text(max_size=60) | st.none())
    def test_a_type_can_always_be_chosen(self, head: bytes, declared: str | None, url: str | None) -> None:
        chosen = choose_type(head, declared, url)
        assert chosen.extension.isalnum()
        assert chosen.extension == chosen.extension.lower()


class TestChoosing:
    def test_bytes_decide_and_a_contradiction_is_noted(self) -> None:
        assert choose_type(JPEG, "image/png", "https://a.invalid/x.png") == FileType("image/jpeg", "jpg", mismatch=True)
        assert choose_type(EXAMPLES["svg"], "image/svg+xml", "https://a.invalid/x.png").mismatch

    @pytest.mark.parametrize(
        ("head", "declared", "url"),
        [
            (PNG, "application/octet-stream", "https://a.invalid/x.png"),
            (JPEG, "image/jpg", "https://a.invalid/x.jpeg"),
            (PNG, "IMAGE/PNG; charset=binary", "https://a.invalid/x"),
            (PNG, None, "https://a.invalid/x.bin?y=.jpg"),
            (EXAMPLES["wav"], "audio/x-wav", None),
            (EXAMPLES["obj"], "text/plain", "https://a.invalid/m.obj"),
            (EXAMPLES["mov"], "video/mp4", "https://a.invalid/v.mp4"),
            (EXAMPLES["usdz"], "application/zip", None),
        ],
    )
    def test_the_same_thing_by_another_name_is_no_mismatch(self, head: bytes, declared: str, url: str) -> None:
        assert not choose_type(head, declared, url).mismatch

    def test_the_declared_type_counts_where_bytes_are_silent_and_the_link_last(self) -> None:
        silent = b"\x01\x02\x03"
        assert choose_type(silent, "audio/L16; rate=24000", "https://a.invalid/x.mp3") == FileType("audio/pcm", "pcm")
        assert choose_type(silent, "binary/octet-stream", "https://a.invalid/x.PLY?e=1") == FileType("model/ply", "ply")
        assert choose_type(silent, "image/x-new", "https://a.invalid/x.new") == FileType("image/x-new", "new")
        assert choose_type(silent) == FileType("application/octet-stream", "bin")

    @pytest.mark.parametrize(
        ("url", "extension"),
        [
            ("https://a.invalid/a/b.PNG?x=.gif", "png"),
            ("https://a.invalid/o/a%2Fb.glb", "glb"),
            ("https://a.invalid/.png", ""),
            ("https://a.b/c", ""),
            ("https://[", ""),
            ("https://a.invalid/x.tar.gz#.zip", "gz"),
            (None, ""),
        ],
    )
    def test_the_extension_of_a_link_is_its_paths(self, url: str | None, extension: str) -> None:
        assert url_extension(url) == extension


class TestErrorPages:
    @pytest.mark.parametrize(
        ("head", "declared"),
        [
            (HTML, "text/html"),
            (HTML, "image/png"),
            (b"\n\n <html lang=en>", None),
            (XML_ERROR, "application/xml"),
            (b"<Error><Code>NoSuchKey</Code></Error>", "image/png"),
            (b'{"error": {"message": "expired"}}', "application/json"),
            (b'{"detail":"gone"}', None),
            (b"{}", "image/png"),
            (b"Access denied", "text/plain"),
            (b"404 page not found", None),
            (b"nothing to see", "text/html"),
        ],
    )
    def test_documents_in_place_of_media_are_told(self, head: bytes, declared: str | None) -> None:
        assert looks_like_error_page(head, declared)

    @pytest.mark.parametrize("extension", [e for e in EXAMPLES if e not in ("html", "xml")])
    def test_media_are_media_even_when_labelled_as_a_page(self, extension: str) -> None:
        assert not looks_like_error_page(EXAMPLES[extension], "text/html")

    @pytest.mark.parametrize(
        "head", [b"\x01\x02\x03", b"\0" * 100, b"WEBVTT\n\n", b"1\n00:00:01,000 --> 00:00:02,000\nHi"]
    )
    def test_unknown_bytes_and_sidecars_are_no_error(self, head: bytes) -> None:
        assert not looks_like_error_page(head, "application/octet-stream")


hostile = st.text(max_size=60) | st.sampled_from(
    [
        "",
        ".",
        "..",
        "-",
        "con",
        "NUL",
        "com1.txt",
        "a/b",
        "a\\b",
        "a:b",
        "x" * 300,
        "\u00e9",
        "e\u0301",
        "row-1",
        "a~b",
        "../../etc/passwd",
        "tab\there",
        "fox\u202egpj",
        "\U0001f98a",
        "\ud800",
        "_",
        "a_b",
        "a b",
        "trailing.",
    ]
)
places = st.tuples(st.integers(1, 10**9), hostile, st.integers(1, 10**4))


class TestNames:
    def test_a_name_tells_batch_row_id_and_index(self) -> None:
        assert asset_name("prompts", 1, "fox", 1, "png") == "prompts-000001-fox-1.png"
        assert asset_name("prompts", 12, "row-12", 2, "mp4") == "prompts-000012-2.mp4"
        assert asset_name("Кошки", 3, "Café_2.1", 1, "webp") == "Кошки-000003-Café_2.1-1.webp"

    def test_without_an_extension_the_stem_is_the_same(self) -> None:
        long = "x" * 300
        assert asset_name("b", 1, long, 1, "glb") == asset_name("b", 1, long, 1, "") + ".glb"

    def test_what_had_to_change_carries_a_hash(self) -> None:
        names = [asset_name("b", 1, given, 1, "png") for given in ("a/b", "a:b", "a_b", "a b")]
        assert len(set(names)) == 4
        assert names[2] == "b-000001-a_b-1.png"
        assert names[0].startswith("b-000001-a_b~")

    def test_two_long_ids_that_begin_alike_differ(self) -> None:
        assert asset_name("b", 1, "x" * 300, 1, "png") != asset_name("b", 1, "x" * 301, 1, "png")

    def test_a_device_name_of_windows_is_no_name(self) -> None:
        assert asset_name("con.x", 1, "a", 1, "png").startswith("_con.x-")

    @given(hostile, places, st.sampled_from(["png", "PNG", "", "../x", "verylongextension"]))
    def test_every_name_is_safe_on_every_file_system(self, batch: str, place: tuple[int, str, int], ext: str) -> None:
        name = asset_name(batch, *place, ext)
        assert name == asset_name(batch, *place, ext)
        assert len(name.encode()) <= 120
        assert name == unicodedata.normalize("NFC", name)
        assert name[0] not in ".- "
        assert name[-1] not in ". "
        assert not set(name) & set('/\\:*?"<>| ')
        assert all(unicodedata.category(c)[0] in "LMNP" or c == "~" for c in name)
        assert name.partition(".")[0].upper() not in ("CON", "PRN", "AUX", "NUL", "COM1", "LPT1")

    @given(hostile, places, places)
    def test_different_places_have_different_names(
        self, batch: str, one: tuple[int, str, int], other: tuple[int, str, int]
    ) -> None:
        names = asset_name(batch, *one, "png"), asset_name(batch, *other, "png")
        if one != other:
            assert names[0] != names[1]
        if (one[0], one[2]) != (other[0], other[2]):
            assert names[0].casefold() != names[1].casefold()


class TestNameTemplates:
    """Names as a user wants them, and as safe as the usual ones."""

    def test_it_tells_batch_row_id_model_and_index(self) -> None:
        template = NameTemplate.parse("{batch}/{model}/{row}_{custom_id}-{index}.{ext}")
        assert template.stem("prompts", 12, "fox", "bfl/flux-2-pro", 2) == "prompts/bfl_flux-2-pro/000012_fox-2"

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("{custom_id}-{index}", "must end with .{ext}"),
            ("{ext}-{row}-{index}.{ext}", "must end with .{ext}"),
            ("{custom_id}.{ext}", "must hold {index}"),
            ("{index}.{ext}", "must hold {index}, and {row} or {custom_id}"),
            ("{prompt}-{row}-{index}.{ext}", "{prompt} is nothing"),
            ("../{row}-{index}.{ext}", "do not begin with"),
            ("/tmp/{row}-{index}.{ext}", "parted by /"),
            ("a//{row}-{index}.{ext}", "parted by /"),
            ("my files/{row}-{index}.{ext}", "hold letters"),
            ("a\\{row}-{index}.{ext}", "hold letters"),
            ("d/" * 17 + "{row}-{index}.{ext}", "it has 17 folders, and 16 are the most"),
            ("{{row}}-{row}-{index}.{ext}", "hold letters"),
        ],
    )
    def test_one_that_cannot_be_meant_says_why(self, text: str, why: str) -> None:
        with pytest.raises(NameFault, match=re.escape(why)):
            NameTemplate.parse(text)

    @given(hostile, places, st.sampled_from(["{batch}/{custom_id}-{index}.{ext}", "{custom_id}/{index}.{ext}"]))
    def test_every_folder_and_name_is_safe_on_every_file_system(
        self, batch: str, place: tuple[int, str, int], text: str
    ) -> None:
        row, custom_id, index = place
        stem = NameTemplate.parse(text).stem(batch, row, custom_id, "acme/paint", index)
        assert len(stem.split("/")) == 2
        for part in stem.split("/"):
            assert 0 < len(part.encode()) <= 120
            assert part[0] not in ".- "
            assert part[-1] not in ". "
            assert all(unicodedata.category(c)[0] in "LMNP" or c == "~" for c in part)
            assert not set(part) & set('\\:*?"<>|')
            assert part.partition(".")[0].upper() not in ("CON", "PRN", "AUX", "NUL", "COM1", "LPT1")

    @given(places, places)
    def test_different_places_have_different_names(
        self, one: tuple[int, str, int], other: tuple[int, str, int]
    ) -> None:
        template = NameTemplate.parse("{row}/{custom_id}-{index}.{ext}")
        if one != other:
            assert template.stem("b", one[0], one[1], "a/b", one[2]) != template.stem(
                "b", other[0], other[1], "a/b", other[2]
            )
