"""When the rest of a file may be added to what is there, and when it must come anew."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.ranges import WORTH_RESUMING, Begun, resuming_headers, size_if_continued, validator_to_resume_by

CHANGED = "Wed, 21 Oct 2026 07:28:00 GMT"
BEGUN = Begun(1000, '"abc"')
REST = {"etag": '"abc"', "content-range": "bytes 1000-4999/5000", "content-length": "4000"}


class TestTheValidator:
    @pytest.mark.parametrize(
        ("headers", "size", "validator"),
        [
            ({"etag": '"abc"'}, WORTH_RESUMING, '"abc"'),
            ({"etag": '"abc"', "content-encoding": "identity"}, WORTH_RESUMING, '"abc"'),
            # Too small, or of a size that is not said.
            ({"etag": '"abc"'}, WORTH_RESUMING - 1, None),
            ({"etag": '"abc"'}, None, None),
            # Nothing that proves single bytes.
            ({"etag": 'W/"abc"'}, WORTH_RESUMING, None),
            ({"etag": "abc"}, WORTH_RESUMING, None),
            ({"etag": ""}, WORTH_RESUMING, None),
            ({"etag": '"a\nb"'}, WORTH_RESUMING, None),
            ({"last-modified": CHANGED, "date": "Wed, 21 Oct 2026 07:29:00 GMT"}, WORTH_RESUMING, CHANGED),
            ({"last-modified": CHANGED, "date": "Wed, 21 Oct 2026 07:28:59 GMT"}, WORTH_RESUMING, None),
            ({"last-modified": CHANGED, "date": "Wed, 21 Oct 2026 07:27:00 GMT"}, WORTH_RESUMING, None),
            ({"last-modified": CHANGED}, WORTH_RESUMING, None),
            ({"last-modified": "2026-10-21", "date": CHANGED}, WORTH_RESUMING, None),
            ({"last-modified": "Wed, 99 Oct 2026 07:28:00 GMT", "date": CHANGED}, WORTH_RESUMING, None),
            # A date is not asked by where there is a tag (RFC 9110, 13.1.5).
            (
                {"etag": 'W/"abc"', "last-modified": CHANGED, "date": "Wed, 21 Oct 2026 09:28:00 GMT"},
                WORTH_RESUMING,
                None,
            ),
            ({"etag": '"abc"', "content-encoding": "gzip"}, WORTH_RESUMING, None),
            ({}, WORTH_RESUMING, None),
        ],
    )
    def test_only_a_strong_one_of_a_large_file_is_kept(
        self, headers: dict[str, str], size: int | None, validator: str | None
    ) -> None:
        assert validator_to_resume_by(headers, size) == validator


class TestTheRest:
    def test_it_is_asked_for_under_the_tag(self) -> None:
        assert resuming_headers(BEGUN) == {"Range": "bytes=1000-", "If-Range": '"abc"'}

    def test_it_is_taken_where_offset_end_and_validator_are_proven(self) -> None:
        assert size_if_continued(BEGUN, 206, REST) == 5000
        assert size_if_continued(BEGUN, 206, {name: REST[name] for name in ("etag", "content-range")}) == 5000

    def test_by_a_date_it_is_taken_where_the_date_is_the_same_and_no_tag_has_come(self) -> None:
        begun = Begun(1000, CHANGED)
        rest = {"last-modified": CHANGED, "content-range": "bytes 1000-4999/5000"}
        assert resuming_headers(begun)["If-Range"] == CHANGED
        assert size_if_continued(begun, 206, rest) == 5000
        for change in ({"last-modified": "Wed, 21 Oct 2026 07:28:01 GMT"}, {"last-modified": ""}, {"etag": '"abc"'}):
            assert size_if_continued(begun, 206, rest | change) is None

    @pytest.mark.parametrize(
        ("status", "change"),
        [
            (200, {}),
            (416, {"content-range": "bytes */5000"}),
            (206, {"content-range": "bytes 0-4999/5000"}),
            (206, {"content-range": "bytes 999-4999/5000"}),
            (206, {"content-range": "bytes 1000-3999/5000", "content-length": "3000"}),
            (206, {"content-range": "bytes 1000-4999/*"}),
            (206, {"content-range": "bytes 1000-4999"}),
            (206, {"content-range": ""}),
            (206, {"content-range": "pages 1000-4999/5000"}),
            (206, {"content-range": "bytes 5000-4999/5000"}),
            (206, {"etag": '"other"'}),
            (206, {"etag": 'W/"abc"'}),
            (206, {"etag": ""}),
            (206, {"content-length": "1"}),
            (206, {"content-encoding": "gzip"}),
            (206, {"content-range": "multipart/byteranges"}),
        ],
    )
    def test_anything_else_is_not_the_rest(self, status: int, change: dict[str, str]) -> None:
        assert size_if_continued(BEGUN, status, REST | change) is None

    @given(st.integers(1, 2**40), st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 2**40))
    def test_whatever_a_host_claims_what_is_added_begins_where_the_file_ends(
        self, begun: int, first: int, last: int, size: int
    ) -> None:
        headers = {"etag": '"x"', "content-range": f"bytes {first}-{last}/{size}"}
        if size_if_continued(Begun(begun, '"x"'), 206, headers) is not None:
            assert first == begun
            assert begun + (last - first + 1) == size
