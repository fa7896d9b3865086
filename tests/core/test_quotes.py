"""What a manifest would cost: few quotes, honest sums, and never a zero for what is not known."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.quotes import MOST_SHAPES, Estimate, Quote, Shapes, read_quote

CENTS = st.decimals(min_value=0, max_value=100, places=2)


def body(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def shapes_of(*bodies: bytes, model: str = "acme/paint", query: str = "") -> Shapes:
    shapes = Shapes()
    for each in bodies:
        shapes.add(model, query, each)
    return shapes


class TestReadingAQuote:
    @pytest.mark.parametrize(
        ("document", "expected"),
        [
            ({"source": "exact", "amount": "0.04"}, Quote(Decimal("0.04"), Decimal("0.04"))),
            (
                {"source": "estimated", "min_amount": "0.05", "max_amount": "0.12"},
                Quote(Decimal("0.05"), Decimal("0.12")),
            ),
            ({"source": "unknown", "reason": "not_quotable"}, Quote(reason="not_quotable")),
            ({"source": "unknown"}, Quote(reason="unknown")),
            # An absent amount is never zero, and what is not understood is not known.
            ({"source": "exact"}, Quote(reason="unknown")),
            ({"source": "exact", "amount": 0.04}, Quote(reason="unknown")),
            ({"source": "exact", "amount": "free"}, Quote(reason="unknown")),
            ({"source": "exact", "amount": "-1"}, Quote(reason="unknown")),
            ({"source": "exact", "amount": "NaN"}, Quote(reason="unknown")),
            ({"source": "estimated", "min_amount": "2", "max_amount": "1"}, Quote(reason="unknown")),
            ({"source": "estimated", "min_amount": "2"}, Quote(reason="unknown")),
            ({"source": "a new one", "amount": "0.04"}, Quote(reason="unknown")),
            ({}, Quote(reason="unknown")),
        ],
    )
    def test_only_what_is_said_counts(self, document: dict[str, object], expected: Quote) -> None:
        assert read_quote(document) == expected


class TestShapes:
    def test_rows_that_differ_in_their_texts_are_priced_by_the_shortest_and_the_longest(self) -> None:
        rows = [body(prompt="a cat " * n, width=1024) for n in (3, 1, 7, 2)]
        (shape,) = shapes_of(*rows).all()
        assert (shape.rows, shape.samples) == (4, (rows[1], rows[2]))

    def test_equal_rows_take_one_quote(self) -> None:
        (shape,) = shapes_of(*[body(prompt="a cat")] * 5).all()
        assert (shape.rows, len(shape.samples)) == (5, 1)

    @pytest.mark.parametrize(
        "fields",
        [
            {"seed": 7},
            {"noise_seed": 7},
            {"negative_prompt": "dog"},
            {"image_url": "https://a.invalid/x"},
            {"input": "b"},
        ],
    )
    def test_content_and_seeds_set_no_price(self, fields: dict[str, object]) -> None:
        other = {name: 8 if isinstance(value, int) else f"{value}!" for name, value in fields.items()}
        assert len(shapes_of(body(prompt="a", **fields), body(prompt="b", **other)).all()) == 1

    @pytest.mark.parametrize(
        "fields",
        [{"width": 1024}, {"quality": "high"}, {"size": "1024x1024"}, {"n": 2}, {"hd": True}, {"duration": "10"}],
    )
    def test_choices_and_numbers_may_set_the_price(self, fields: dict[str, object]) -> None:
        assert len(shapes_of(body(prompt="a"), body(prompt="a", **fields)).all()) == 2

    def test_models_and_providers_are_priced_apart(self) -> None:
        shapes = shapes_of(body(prompt="a"))
        shapes.add("acme/other", "", body(prompt="a"))
        shapes.add("acme/paint", "model_provider=fal", body(prompt="a"))
        assert len(shapes.all()) == 3

    def test_however_many_different_rows_there_are_the_number_of_quotes_is_bounded(self) -> None:
        shapes = shapes_of(*(body(prompt="a", width=width) for width in range(MOST_SHAPES + 50)))
        assert len(shapes.all()) == MOST_SHAPES
        assert shapes.beyond == {"acme/paint": 50}


class TestSums:
    def test_rows_times_quotes_and_what_is_unknown_by_its_reason(self) -> None:
        estimate = Estimate()
        estimate.add(10, [Quote(Decimal("0.03"), Decimal("0.03"))])
        estimate.add(4, [Quote(Decimal("0.10"), Decimal("0.20")), Quote(Decimal("0.15"), Decimal("0.50"))])
        estimate.add(3, [Quote(reason="not_quotable")])
        estimate.add(2, [Quote(Decimal(1), Decimal(1)), Quote(reason="byok")])
        assert (estimate.rows, estimate.low, estimate.high) == (19, Decimal("0.70"), Decimal("2.30"))
        assert (estimate.unknown, estimate.unknown_rows) == ({"not_quotable": 3, "byok": 2}, 5)

    @given(st.lists(st.tuples(st.integers(1, 1000), CENTS, CENTS), max_size=20))
    def test_a_sum_is_exact_and_its_bounds_keep_their_order(self, parts: list[tuple[int, Decimal, Decimal]]) -> None:
        estimate = Estimate()
        for rows, one, other in parts:
            estimate.add(rows, [Quote(min(one, other), max(one, other))])
        assert estimate.low == sum(rows * min(one, other) for rows, one, other in parts)
        assert estimate.high == sum(rows * max(one, other) for rows, one, other in parts)
        assert estimate.low <= estimate.high
