"""What is known before anything is sent: problems, costs, consent."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from typing import Any

import pytest

from runner.cli.spending import Consent, approver, estimate_of
from runner.core.errors import UsageError
from runner.core.quotes import Shapes
from runner.core.wire import HttpRequest, HttpResponse, Reply
from runner.router.client import RouterClient
from runner.router.patience import MOST_TRIES, Patient
from tests.answers.bench import MODEL, OPEN_MODEL, Bench
from tests.support.fakes import Clock, FakeRouter, answer, refusal

Start = Callable[..., Bench]
BAD = "id,prompt,width,output_format\na,a cat,9000,png\nb,,64,png\nc,a dog,64,gif\n"


def calls(bench: Bench, kind: str) -> int:
    return int(bench.router.ledger(summary=True)["calls"][kind])


class TestValidate:
    def test_a_manifest_that_fits_is_said_to_and_nothing_is_kept_of_it(self, start: Start) -> None:
        bench = start()
        ended = bench.cli("validate", bench.write("fine.csv", "prompt,width\na cat,64\n"), "--model", MODEL)
        assert (ended.code, "1 row" in ended.out, "nothing wrong" in ended.out) == (0, True, True)
        assert bench.cli("status").out.startswith("No batch yet")
        assert calls(bench, "submit") == 0

    def test_every_problem_of_file_and_bodies_is_named_by_line_and_field(self, start: Start) -> None:
        bench = start()
        ended = bench.cli("validate", bench.write("bad.csv", BAD), "--model", MODEL)
        assert ended.code == 2
        for words in ("line 2, `body.width`: must be at most 4096", "line 3", "line 4, `body.output_format`"):
            assert words in ended.err

    def test_as_json_for_scripts(self, start: Start) -> None:
        bench = start()
        bad = bench.cli("validate", bench.write("bad.csv", BAD), "--model", MODEL, "--json").document
        assert (bad["problem_count"], [problem["line"] for problem in bad["problems"]]) == (3, [2, 3, 4])
        fine = bench.cli("validate", bench.write("a.csv", "prompt\na\n"), "--model", OPEN_MODEL, "--json").document
        assert (fine["rows"], fine["problem_count"]) == (1, 0)
        assert fine["models"] == [{"id": OPEN_MODEL, "checked": False}]

    def test_a_model_that_cannot_be_checked_ahead_is_said_once(self, start: Start) -> None:
        bench = start()
        ended = bench.cli("validate", bench.write("a.csv", "prompt\n" + "a cat\n" * 9), "--model", OPEN_MODEL)
        assert (ended.code, ended.err.count("cannot be checked ahead")) == (0, 1)

    def test_without_a_key_the_file_is_checked_and_its_bodies_are_said_not_to_be(
        self, start: Start, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench = start()
        monkeypatch.delenv("COMFY_API_KEY")
        ended = bench.cli("validate", bench.write("wide.csv", "prompt,body.width:int\na cat,9000\n"), "--model", MODEL)
        assert (ended.code, "not checked against their models" in ended.err) == (0, True)
        ended = bench.cli("validate", bench.write("bad.csv", "prompt\n   \na,b\n"), "--model", MODEL)
        assert (ended.code, "line 3" in ended.err) == (2, True)
        assert calls(bench, "catalog") == 0

    def test_a_schema_is_fetched_once_and_then_only_if_it_has_changed(self, start: Start) -> None:
        bench = start()
        manifest = bench.write("fine.csv", "prompt\n" + "a cat\n" * 50)
        bench.cli("validate", manifest, "--model", MODEL)
        first = calls(bench, "catalog")
        bench.cli("validate", manifest, "--model", MODEL)
        assert (first, calls(bench, "catalog") - first) == (2, 2)

    def test_run_does_the_same_before_it_sends_anything(self, start: Start) -> None:
        bench = start()
        ended = bench.cli("run", bench.write("bad.csv", BAD), "--model", MODEL)
        assert (ended.code, "3 problems, nothing was sent" in ended.err) == (2, True)
        assert calls(bench, "submit") == 0
        assert bench.cli("status").out.startswith("No batch yet")

    def test_should_the_schema_be_wrong_the_rows_can_be_sent_all_the_same(self, start: Start) -> None:
        bench = start()
        content = "prompt,width\na cat,9000\n"
        assert "--no-check" in bench.submit(content).err
        assert bench.submit(content, "--no-check").code == 0
        bench.work()
        # The Router has its own opinion, and the last word.
        assert bench.show()["error_type"] == "invalid_input"

    def test_another_providers_own_form_is_not_judged(self, start: Start) -> None:
        bench = start()
        odd = '{"body": {"image_size": "square"}, "model_provider": "fal", "strict_mode": true}\n'
        assert bench.cli("validate", bench.write("odd.jsonl", odd), "--model", MODEL).code == 0
        plain = '{"body": {"image_size": "square"}}\n'
        assert bench.cli("validate", bench.write("plain.jsonl", plain), "--model", MODEL).code == 2


class TestModels:
    def test_the_whole_catalog_is_listed(self, start: Start) -> None:
        ended = start().cli("models", "--json")
        entries = {entry["id"]: entry["charges_on_policy_rejection"] for entry in ended.document["models"]}
        assert (entries[MODEL], entries["bfl/flux-2-flex"], len(entries)) == ("no", "yes", 12)

    def test_one_models_inputs_are_shown(self, start: Start) -> None:
        bench = start()
        shown = bench.cli("models", MODEL).out
        assert all(word in shown for word in ("prompt", "needed", "64", "4096", "default 1024", "png, jpeg"))
        document = bench.cli("models", MODEL, "--json").document
        (prompt,) = (field for field in document["fields"] if field["name"] == "prompt")
        assert (prompt["type"], prompt["required"], document["checked_ahead"]) == ("string", True, True)

    def test_one_that_is_nearly_a_model_is_answered_with_its_neighbours(self, start: Start) -> None:
        ended = start().cli("models", "bfl/flux-2-pr")
        assert (ended.code, "comfy-batch models bfl/flux-2-pro" in ended.err) == (2, True)

    def test_a_model_without_a_schema_says_so(self, start: Start) -> None:
        assert "cannot be checked ahead" in start().cli("models", OPEN_MODEL).out


class TestEstimate:
    def test_shapes_are_priced_and_unknown_parts_named(self, start: Start) -> None:
        bench = start()
        rows = [f"{'a cat ' * n},{MODEL}" for n in range(1, 31)]
        rows += ["a dog,bfl/flux-2-flex"] * 10 + ["a fox,fal/h3-max"] * 3
        manifest = bench.write("mixed.csv", "\n".join(["prompt,model", *rows, ""]))
        before = calls(bench, "catalog")
        document = bench.cli("estimate", manifest, "--json").document
        assert document == {
            "manifest": "mixed.csv",
            "currency": "USD",
            "rows": 43,
            "quoted_rows": 40,
            "min_amount": "1.4",
            "max_amount": "2.1",
            "unknown": [{"reason": "not_quotable", "rows": 3}],
        }
        # Two reads of the catalog for each model, and one quote or two for each shape.
        assert calls(bench, "catalog") - before == 3 * 2 + 4
        assert calls(bench, "submit") == 0
        said = bench.cli("estimate", manifest).out
        assert "$1.40 to $2.10 for 40 rows, unknown for 3 rows (the Router cannot price it before it runs)" in said

    def test_where_no_quotes_are_given_that_is_found_out_once(self, start: Start) -> None:
        bench = start({"estimate_disabled": True})
        manifest = bench.write("wide.csv", "prompt,width\n" + "".join(f"a,{width}\n" for width in range(64, 84)))
        document = bench.cli("estimate", manifest, "--model", MODEL, "--json").document
        assert (document["min_amount"], document["unknown"]) == (None, [{"reason": "not_offered", "rows": 20}])
        assert calls(bench, "catalog") == 3


class TestMaxCost:
    def test_a_batch_that_could_cost_more_is_refused_and_nothing_remains_of_it(self, start: Start) -> None:
        bench = start()
        ended = bench.submit("prompt\n" + "a cat\n" * 10, "--max-cost", "0.29")
        assert (ended.code, "could cost $0.30, more than --max-cost $0.29" in ended.err) == (2, True)
        assert bench.cli("status").out.startswith("No batch yet")
        assert bench.submit("prompt\n" + "a cat\n" * 10, "--max-cost", "0.30").code == 0

    def test_where_the_cost_is_not_known_it_takes_a_yes(self, start: Start) -> None:
        bench = start()
        ended = bench.submit("prompt\na cat\n", "--max-cost", "5", model="fal/h3-max")
        assert (ended.code, "--yes" in ended.err) == (2, True)
        assert bench.submit("prompt\na cat\n", "--max-cost", "5", "--yes", model="fal/h3-max").code == 0

    def test_sending_pauses_before_the_quotes_of_the_sends_pass_it(self, start: Start) -> None:
        # What was not quoted before is quoted by the sends.
        bench = start({"estimate_disabled": True})
        content = "prompt\n" + "a cat\n" * 10
        # However many may be in flight.
        bench.submit(content, "--max-cost", "0.10", "--yes")
        bench.router.faults(estimate_disabled=False)
        bench.work()
        said, summary = bench.status()
        assert (said.code, summary["pause_reason"]) == (3, "max_cost")
        assert (summary["jobs"]["succeeded"], summary["jobs"]["pending"]) == (3, 7)
        assert "larger --max-cost" in said.err
        # To resume it as it is changes nothing.
        bench.resume()
        bench.work()
        assert bench.status()[1]["jobs"]["succeeded"] == 3
        bench.submit(content, "--max-cost", "1", "--yes")
        bench.work()
        assert bench.status()[1]["jobs"]["succeeded"] == 10
        bench.router.assert_paid_once(10)

    @pytest.mark.parametrize("amount", ["much", "-1", "NaN", "1e999999999"])
    def test_an_amount_that_is_none_is_refused(self, start: Start, amount: str) -> None:
        assert start().submit("prompt\na cat\n", "--max-cost", amount).code == 2


class TestWhatWasPaid:
    def test_status_adds_up_what_is_known_and_counts_what_is_not(self, start: Start) -> None:
        bench = start()
        rows = [f"a cat,{MODEL}"] * 3 + ["a dog [fail:provider_error],bfl/flux-2-flex", "a fox,fal/h3-max"]
        bench.submit("\n".join(["prompt,model", *rows, ""]))
        bench.work()
        said, summary = bench.status()
        assert summary["cost"] == {
            "currency": "USD",
            "billed": {"min_amount": "0.09", "max_amount": "0.09", "unknown_jobs": 1},
            "possible": {"min_amount": "0.05", "max_amount": "0.12", "unknown_jobs": 0},
        }
        assert "4 billed ($0.09; unknown for 1), 1 possible ($0.05 to $0.12), 0 not" in said.out


class TestConsent:
    """Whether somebody is asked, which only a terminal could be."""

    def shapes(self, rows: int, model: str = MODEL) -> Shapes:
        shapes = Shapes()
        for _ in range(rows):
            shapes.add(model, "", b'{"prompt":"a cat"}')
        return shapes

    def asked(self, bench: Bench, rows: int, model: str = MODEL, **consent: Any) -> list[str]:
        questions: list[str] = []
        told = Consent(**{"can_ask": True, "confirm_above": Decimal(1), **consent})
        with closing(RouterClient(bench.router.base_url, "key-1", timeout=5.0)) as router:
            approver(router, told, questions.append)(self.shapes(rows, model))
        return questions

    @pytest.mark.parametrize(
        ("consent", "depends"),
        [
            (Consent(can_ask=True, confirm_above=Decimal(1)), True),
            (Consent(max_cost=Decimal(1), yes=True), True),
            (Consent(can_ask=True, confirm_above=Decimal(1), yes=True), False),
            (Consent(can_ask=True), False),
            (Consent(confirm_above=Decimal(1)), False),
        ],
        ids=["a person", "a limit", "a yes", "no sum", "no terminal"],
    )
    def test_the_router_is_asked_only_where_the_answer_matters(self, consent: Consent, depends: bool) -> None:
        assert consent.depends_on_cost is depends

    def test_above_the_set_sum_it_asks_and_says_how_many_runs_that_is(self, start: Start) -> None:
        bench = start()
        assert self.asked(bench, 33) == []
        assert self.asked(bench, 34) == ["34 paid runs, $1.02 for 34 rows. Go on?"]

    def test_many_rows_of_unknown_cost_are_asked_about(self, start: Start) -> None:
        bench = start()
        assert self.asked(bench, 99, "fal/h3-max") == []
        assert self.asked(bench, 100, "fal/h3-max")[0].startswith("100 paid runs, unknown for 100 rows")

    def test_without_a_terminal_no_quote_is_asked_for(self, start: Start) -> None:
        bench = start()
        bench.submit("prompt\n" + "a cat\n" * 300)
        assert calls(bench, "catalog") == 2

    def test_an_unknown_cost_under_a_limit_is_asked_about(self, start: Start) -> None:
        (question,) = self.asked(start(), 2, "fal/h3-max", max_cost=Decimal(5))
        assert question == "what 2 of 2 rows cost is not known. Go on?"

    def test_a_no_ends_it(self, start: Start) -> None:
        def no(question: str) -> None:
            raise UsageError("nothing was started")

        with closing(RouterClient(start().router.base_url, "key-1", timeout=5.0)) as router:
            approve = approver(router, Consent(confirm_above=Decimal(0), can_ask=True), no)
            with pytest.raises(UsageError):
                approve(self.shapes(1))


class TestPatience:
    def ask(self, *replies: Reply) -> tuple[Reply, Clock]:
        clock = Clock(0.0)
        router = FakeRouter(*replies)
        reply = Patient(router, clock.sleep, clock).exchange(HttpRequest("GET", f"{router.base_url}/v2/models"))
        assert router.unused == 0
        return reply, clock

    def test_a_short_wait_that_the_router_names_is_waited_for(self) -> None:
        reply, clock = self.ask(refusal(429, "rate_limited", retry_after="2"), answer(200, {"data": []}))
        assert isinstance(reply, HttpResponse)
        assert (reply.status, clock.now) == (200, 2.0)

    @pytest.mark.parametrize("headers", [{}, {"retry_after": "3600"}], ids=["no wait", "a long wait"])
    def test_anything_else_is_the_answer(self, headers: dict[str, str]) -> None:
        reply, clock = self.ask(refusal(503, "service_unavailable", **headers))
        assert isinstance(reply, HttpResponse)
        assert (reply.status, clock.now) == (503, 0.0)

    def test_it_does_not_go_on_for_ever(self) -> None:
        reply, clock = self.ask(*[refusal(429, "rate_limited", retry_after="2")] * MOST_TRIES)
        assert isinstance(reply, HttpResponse)
        assert (reply.status, clock.now) == (429, 2.0 * (MOST_TRIES - 1))


def test_a_catalog_of_several_pages_is_read_to_its_end() -> None:
    from runner.router.catalog import list_models

    def page(*ids: str, cursor: str | None = None) -> HttpResponse:
        more = {"has_more": cursor is not None, "limit": 2} | ({"next_cursor": cursor} if cursor else {})
        billing = {"charges_on_policy_rejection": "no"}
        return answer(200, {"data": [{"id": each, "billing": billing} for each in ids], **more})

    router = FakeRouter(page("a/1", "a/2", cursor="x+/="), page("a/3"))
    assert [entry.id for entry in list_models(router)] == ["a/1", "a/2", "a/3"]
    assert router.requests[1].url.endswith("limit=100&cursor=x%2B%2F%3D")


def test_a_quote_that_does_not_come_is_unknown_and_not_zero() -> None:
    shapes = Shapes()
    shapes.add(MODEL, "", json.dumps({"prompt": "a cat"}).encode())
    found = estimate_of(FakeRouter(answer(502, b"<html>")), shapes)
    assert (found.unknown, found.high) == ({"no_answer": 1}, Decimal(0))
