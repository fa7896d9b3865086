"""What the catalog says of a model before anything is paid for."""

from __future__ import annotations

import pytest

from runner.core.wire import HttpResponse, NoResponse, Reply
from runner.router.catalog import ModelInfo, NoSuchModel, RouterUnusable, check_access, look_up_model
from tests.support.fakes import FakeRouter, answer, refusal

MODEL = "acme/paint"
SCHEMA = {"openapi": "3.1.0", "paths": {"/": {}}}
UNREACHABLE = NoResponse("the Router cannot be reached", sent=False)


def entry(charges: object = "yes") -> HttpResponse:
    return answer(200, {"id": MODEL, "billing": {"charges_on_policy_rejection": charges}})


class TestLookingUp:
    def test_it_takes_two_reads_at_the_models_own_address(self) -> None:
        router = FakeRouter(entry(), answer(200, SCHEMA, etag='"v1"'))
        found = look_up_model(router, MODEL)
        assert found == ModelInfo(MODEL, "yes", SCHEMA, '"v1"')
        assert [(request.method, request.url) for request in router.requests] == [
            ("GET", "https://router.invalid/v2/models/acme/paint"),
            ("GET", "https://router.invalid/v2/models/acme/paint/openapi.json"),
        ]

    @pytest.mark.parametrize(
        ("billing", "charges"),
        [
            ({"charges_on_policy_rejection": "no"}, "no"),
            ({"charges_on_policy_rejection": None}, "unknown"),
            ({"charges_on_policy_rejection": True}, "unknown"),
            ({}, "unknown"),
            (None, "unknown"),
            ("free", "unknown"),
        ],
    )
    def test_a_charge_that_is_not_stated_is_unknown(self, billing: object, charges: str) -> None:
        router = FakeRouter(answer(200, {"id": MODEL, "billing": billing}), answer(200, SCHEMA))
        found = look_up_model(router, MODEL)
        assert isinstance(found, ModelInfo)
        assert found.charges_on_policy_rejection == charges

    def test_a_model_without_a_schema_is_a_model(self) -> None:
        found = look_up_model(FakeRouter(entry(), refusal(404, "not_found")), MODEL)
        assert isinstance(found, ModelInfo)
        assert found.document is None

    def test_an_unknown_model_is_named_with_the_routers_suggestion(self) -> None:
        router = FakeRouter(refusal(404, "model_not_found", "did you mean acme/paint-2?"))
        assert look_up_model(router, "acme/pain") == NoSuchModel("acme/pain", "did you mean acme/paint-2?")
        assert len(router.requests) == 1

    def test_a_model_id_cannot_lead_to_another_address(self) -> None:
        router = FakeRouter(refusal(404, "model_not_found"))
        look_up_model(router, "acme/paint?x=1#y z")
        assert router.requests[0].url == "https://router.invalid/v2/models/acme/paint%3Fx%3D1%23y%20z"

    @pytest.mark.parametrize("status", [401, 403])
    def test_a_refused_key_is_told_from_a_broken_router(self, status: int) -> None:
        with pytest.raises(RouterUnusable, match=f"refuses the API key \\({status}\\)") as caught:
            look_up_model(FakeRouter(refusal(status, "unauthorized")), MODEL)
        assert "COMFY_API_KEY" in (caught.value.advice or "")

    @pytest.mark.parametrize(
        "replies",
        [
            [UNREACHABLE],
            [answer(503)],
            [answer(200, b"<html>a proxy</html>")],
            [answer(200, b'{"id": "acme')],
            [answer(200, ["a", "list"])],
            [entry(), UNREACHABLE],
            [entry(), answer(500)],
            [entry(), answer(200, b"<html>")],
        ],
    )
    def test_anything_but_the_catalog_stops_before_anything_is_sent(self, replies: list[Reply]) -> None:
        with pytest.raises(RouterUnusable, match=MODEL) as caught:
            look_up_model(FakeRouter(*replies), MODEL)
        assert caught.value.exit_code == 3
        assert caught.value.advice


class TestAccess:
    def test_one_cheap_read_tells_that_the_key_is_good(self) -> None:
        router = FakeRouter(answer(200, {"data": []}))
        assert check_access(router) is None
        assert [request.url for request in router.requests] == ["https://router.invalid/v2/models?limit=1"]

    def test_why_it_is_not_is_said_in_words(self) -> None:
        assert check_access(FakeRouter(UNREACHABLE)) == "the Router cannot be reached"
        assert check_access(FakeRouter(refusal(401, "unauthorized"))) == "it answers 401 unauthorized"
        assert check_access(FakeRouter(answer(502, b"<html>"))) == "it answers 502"
