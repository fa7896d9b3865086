"""When results and links end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.expiry import LONGEST_LINK, RETENTION, link_deadline, links_deadline, result_deadline

#: 2027-01-15 08:00:00 UTC.
NOW = 1_800_000_000.0
HOUR = 3600.0


@pytest.mark.parametrize(
    ("url", "lives"),
    [
        ("https://media.example/a.png", LONGEST_LINK),
        ("https://delivery-eu1.bfl.ai/results/a.jpg", 600.0),
        ("https://bfl.ai/a.jpg", 600.0),
        ("https://notbfl.ai/a.jpg", LONGEST_LINK),
        ("https://cdn.minimax.io/a.mp4", 12 * HOUR),
        ("https://s3.example/a?X-Amz-Date=20270115T080000Z&X-Amz-Expires=900&X-Amz-Signature=x", 900.0),
        ("https://storage.example/a?X-Goog-Date=20270115T075000Z&X-Goog-Expires=3600", 3000.0),
        ("https://cdn.example/a?Expires=1800000060&Signature=x", 60.0),
        ("https://delivery.bfl.ai/a?se=2027-01-15T08%3A30%3A00Z&sig=x", 1800.0),
    ],
)
def test_a_link_dies_when_its_signature_says_or_as_its_host_is_known_to(url: str, lives: float) -> None:
    assert link_deadline(url, NOW) == NOW + lives


@pytest.mark.parametrize(
    "query", ["Expires=soon", "Expires=-1", "Expires=" + "9" * 40, "se=tomorrow", "X-Amz-Date=1&X-Amz-Expires=2", "&;="]
)
def test_a_signature_that_says_nothing_usable_is_passed_over(query: str) -> None:
    assert link_deadline(f"https://media.example/a?{query}", NOW) == NOW + LONGEST_LINK


def test_no_link_is_trusted_to_live_longer_than_any_does() -> None:
    assert link_deadline("https://cdn.example/a?Expires=1900000000", NOW) == NOW + LONGEST_LINK


@given(st.text())
def test_whatever_stands_in_a_link_it_has_an_end(url: str) -> None:
    assert link_deadline(url, NOW) <= NOW + LONGEST_LINK


def test_of_several_links_the_first_to_die_counts() -> None:
    urls = ["https://media.example/a.png", "https://delivery.bfl.ai/a.jpg"]
    assert links_deadline(urls, NOW) == NOW + 600
    assert links_deadline([], NOW) is None


def test_a_result_is_certain_for_a_day_after_its_acceptance() -> None:
    assert result_deadline(NOW) == NOW + RETENTION == NOW + 24 * HOUR
