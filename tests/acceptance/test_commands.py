"""Exit statuses and words: what is wrong, where, what to do next; and nothing sent that should not be."""

from __future__ import annotations

import json
import re
import sys
from datetime import datetime
from pathlib import Path

import pytest

from tests.acceptance.harness import MODEL, Bench, assert_files_are_as_recorded, csv_of, free_port

pytestmark = pytest.mark.acceptance

ONE = f"prompt,model\na lighthouse,{MODEL}\n"


def test_json_and_export_have_every_field_and_give_back_ids_words_and_seeds_as_they_were_written(bench: Bench) -> None:
    router = bench.router()
    rows = "\ufeffid,prompt,seed,note\r\n007,NA,1577134800018,=1+1\r\n008,null,,\r\n"
    ended = bench.do("run", bench.write("two.csv", rows), "--model", MODEL, "--output", "pictures", "--json")

    assert ended.code == 0, ended.err
    document = ended.document
    assert list(document) == [
        "batch",
        "name",
        "state",
        "pause_reason",
        "jobs",
        "charges",
        "assets",
        "output_dir",
        "started_at",
        "finished_at",
        "cost",
    ]
    assert (document["name"], document["state"], document["pause_reason"]) == ("two", "finished", None)
    others = ("pending", "in_flight", "downloading", "failed", "cancelled", "expired", "held")
    assert document["jobs"] == {"total": 2, "succeeded": 2} | dict.fromkeys(others, 0)
    assert document["charges"] == {"unbilled": 0, "possible": 0, "billed": 2}
    assert document["assets"] == {"expected": 2, "saved": 2, "failed": 0}
    assert document["output_dir"] == str(bench.folder / "pictures")
    for name in ("started_at", "finished_at"):
        assert datetime.fromisoformat(document[name]).tzinfo is not None
    router.assert_paid_once(2)
    assert_files_are_as_recorded(bench.export(), bench.folder / "pictures")
    told = bench.do("status", "two", "--json")
    assert (told.code, told.document) == (0, document)
    exported = bench.do("export", "two", "--format", "jsonl", "--output", "outcome.jsonl")
    assert (exported.code, exported.out) == (0, "")
    lines = [json.loads(line) for line in (bench.folder / "outcome.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["custom_id"] for line in lines] == ["007", "008"]
    assert [line["input"]["prompt"] for line in lines] == ["NA", "null"]
    assert [str(line["input"]["seed"]) for line in lines] == ["1577134800018", ""]
    assert list(lines[0]) == [
        "row",
        "custom_id",
        "model",
        "state",
        "error_type",
        "error_detail",
        "charge",
        "request_id",
        "idempotency_key",
        "submitted_at",
        "finished_at",
        "result_path",
        "assets",
        "input",
    ]
    assert set(lines[0]["assets"][0]) == {"path", "media_type", "size", "sha256", "state"}


def test_p6_a_manifest_from_standard_input_and_plain_lines_where_there_is_no_terminal(bench: Bench) -> None:
    router = bench.router()
    installed = [str(Path(sys.executable).with_name("comfy-batch"))]
    ended = bench.start("run", "-", program=installed, stdin=csv_of(3).encode()).wait()

    assert ended.code == 0, ended.err
    for text in (ended.out, ended.err):
        assert [character for character in text if not character.isprintable() and character != "\n"] == []
    assert "3/3 done" in ended.err
    assert "stdin: 3 of 3 succeeded" in ended.out
    router.assert_paid_once(3)


def test_on_a_terminal_a_problem_comes_with_its_line_and_carets_and_elsewhere_and_as_json_without(bench: Bench) -> None:
    bench.router()
    manifest = bench.write("bad.csv", f"prompt,model,width\na fox,{MODEL},wide\n")
    drawn = f"       2 │ a fox,{MODEL},wide\n         │ {' ' * 21}^^^^\n"
    shown = bench.do("validate", manifest, TTY_COMPATIBLE="1", NO_COLOR="1", TERM="dumb")
    assert (shown.code, drawn in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.err)) == (2, True), shown.err
    plain = bench.do("validate", manifest, "--json")
    assert "│" not in plain.err
    assert [problem["line"] for problem in plain.document["problems"]] == [2]


def test_p6_words_that_the_console_cannot_print_do_not_stop_the_work(bench: Bench) -> None:
    router = bench.router()
    manifest = bench.write("Türme.csv", f"id,prompt,model\n塔,ein schöner Turm,{MODEL}\n")
    ended = bench.do("run", manifest, PYTHONIOENCODING="ascii")

    assert ended.code == 0, ended.err
    assert bench.do("show", "塔", PYTHONIOENCODING="ascii").code == 0
    router.assert_paid_once(1)


def test_without_a_key_nothing_is_asked_and_the_user_hears_what_to_do(bench: Bench) -> None:
    router = bench.router()
    ended = bench.do("run", bench.write("one.csv", ONE), COMFY_API_KEY="")

    assert (ended.code, ended.out) == (2, "")
    assert "COMFY_API_KEY is not set" in ended.err
    assert "--simulate" in ended.err.partition("Next:")[2]
    assert set(router.ledger()["calls"].values()) == {0}


@pytest.mark.parametrize(
    ("manifest", "problems"),
    [
        pytest.param(
            "id,prompt,seed\n1,a cat, sitting,7\n2,dog\n", {2: "4 fields", 3: "2 fields"}, id="rows-of-another-length"
        ),
        pytest.param("id,prompt\n1,cat\n,\n , \n\n3,   \n", {6: "empty"}, id="a-prompt-of-blanks"),
        pytest.param('id,prompt\na,x\na,y\n1,z\n"1",w\n', {3: "line 2", 5: "line 4"}, id="ids-used-twice"),
        pytest.param(
            "prompt,model\nx,bfl/flux-9-pro\ny,bfl/flux-2-pro\nz,acme/unknown\n",
            {2: "bfl/flux-9-pro", 4: "acme/unknown"},
            id="models-that-are-unknown",
        ),
    ],
)
def test_every_problem_of_a_manifest_is_said_with_its_line_and_nothing_of_it_remains(
    bench: Bench, manifest: str, problems: dict[int, str]
) -> None:
    router = bench.router()
    ended = bench.do("run", bench.write("bad.csv", manifest), "--model", MODEL, "--json")

    assert ended.code == 2
    document = ended.document
    assert {problem["line"] for problem in document["problems"]} == problems.keys()
    assert document["problem_count"] == len(problems)
    for line, words in problems.items():
        said = [text for text in ended.err.splitlines() if f"line {line}" in text.partition(":")[0]]
        assert len(said) == 1, ended.err
        assert words in said[0]
    assert "nothing was sent" in ended.err
    assert router.calls("submit") == 0
    assert bench.batches() == []


def test_an_edited_manifest_is_another_batch_which_is_paid_for_only_when_that_is_said(bench: Bench) -> None:
    router = bench.router()
    assert bench.do("run", bench.write("one.csv", ONE)).code == 0
    bench.write("one.csv", ONE.replace("lighthouse", "tower"))
    refused = bench.do("run", "one.csv")

    assert refused.code == 2
    assert "batch `one` already" in refused.err
    assert "--new" in refused.err.partition("Next:")[2]
    assert router.runs() == 1

    bench.write("one.csv", ONE)
    anew = bench.do("run", "one.csv", "--new", "--json")

    assert anew.code == 0, anew.err
    assert anew.document["name"] == "one-2"
    router.assert_paid_once(2)

    first = bench.do("run", "one.csv", "--name", "one", "--json")

    assert first.code == 0, first.err
    assert first.document["name"] == "one"
    router.assert_paid_once(2)


def test_an_account_without_credits_pauses_the_batch_until_there_are_some(bench: Bench) -> None:
    router = bench.router()
    router.faults(credits=2)
    paused = bench.do("run", bench.write("five.csv", csv_of(5)))

    assert paused.code == 3, paused.err
    assert "2 of 5 succeeded" in paused.out
    assert "not enough credits" in paused.err
    assert "comfy-batch resume five" in paused.err.partition("Next:")[2]
    told = bench.status("five")
    assert (told["state"], told["pause_reason"]) == ("paused", "insufficient_credits")
    assert (told["jobs"]["total"], told["jobs"]["succeeded"], told["jobs"]["pending"]) == (5, 2, 3)

    router.faults(credits=100)
    resumed = bench.do("resume", "five")

    assert resumed.code == 0, resumed.err
    router.assert_paid_once(5)


def test_a_refused_key_pauses_the_batch_and_leaves_every_row_pending(bench: Bench) -> None:
    router = bench.router()
    assert bench.do("submit", bench.write("five.csv", csv_of(5))).code == 0
    router.faults(unauthorized="always")
    paused = bench.do("run", "five.csv")

    assert paused.code == 3, paused.err
    assert "refuses the API key" in paused.err
    assert "comfy-batch resume five" in paused.err
    told = bench.status("five")
    assert (told["state"], told["pause_reason"], told["jobs"]["pending"]) == ("paused", "unauthorized", 5)
    assert router.runs() == 0

    router.faults(unauthorized="0")
    assert bench.do("resume", "five").code == 0
    router.assert_paid_once(5)


def test_a_key_refused_from_the_start_leaves_no_batch(bench: Bench) -> None:
    bench.router().faults(unauthorized="always")
    refused = bench.do("run", bench.write("one.csv", ONE))

    assert refused.code == 3, refused.err
    assert "refuses the API key" in refused.err
    assert "Next:" in refused.err
    assert bench.batches() == []


def test_another_api_key_is_noticed_before_any_call(bench: Bench) -> None:
    router = bench.router()
    assert bench.do("submit", bench.write("one.csv", ONE)).code == 0
    before = router.ledger()

    commands = (("run", "one.csv"), ("resume", "one"), ("retry", "one", "--yes"))
    for program in [bench.start(*command, COMFY_API_KEY="comfyui-somebody-else") for command in commands]:
        refused = program.wait()
        assert refused.code == 3, refused.err
        assert "another API key" in refused.err
        assert "comfyui-" not in refused.err + refused.out
    assert router.ledger() == before

    assert bench.do("resume", "one").code == 0
    router.assert_paid_once(1)


def test_an_unreachable_router_is_said_and_leaves_no_batch(bench: Bench) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    ended = bench.do("run", bench.write("one.csv", ONE), COMFY_ROUTER_BASE_URL=nobody)

    assert ended.code == 3, ended.err
    assert "Error:" in ended.err
    assert "comfy-batch doctor" in ended.err.partition("Next:")[2]
    assert "Traceback" not in ended.err
    assert bench.do("status", "--json").document == {"batches": []}


def test_a_router_that_goes_away_leaves_every_row_owed(bench: Bench) -> None:
    bench.router()
    assert bench.do("submit", bench.write("two.csv", csv_of(2))).code == 0
    bench.held.close()
    waited = bench.do("run", "two.csv", "--wait", "1", "--json")

    assert waited.code == 3, waited.err
    jobs = waited.document["jobs"]
    assert (jobs["failed"], jobs["held"], jobs["pending"] + jobs["in_flight"]) == (0, 0, 2)
    assert waited.document["charges"] == {"unbilled": 2, "possible": 0, "billed": 0}
