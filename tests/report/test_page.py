"""The report: what stands in it, and that nothing from a manifest or an output can run in it."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page

from runner.core.jobspec import JobSpec
from runner.core.types import AssetState, BatchState, Charge, JobState
from runner.report.page import LONGEST_TEXT, Material, report_page
from runner.report.thumbnails import thumbnail
from runner.store.batches import BatchRecord
from runner.store.queries import Alike, AssetView, Cost, Counts, JobView, ModelLine, Summary, Timing
from tests.report.test_export import MODEL, view

EVIL = "</script><script>window.ran=1</script><img src=x onerror=window.ran=1>\"'`${window.ran=1}\u2028<!--"
Open = Callable[[str], Page]


def picture(kind: str = "PNG", size: tuple[int, int] = (640, 480), mode: str = "RGB") -> bytes:
    file = io.BytesIO()
    Image.new(mode, size, 128).save(file, kind)
    return file.getvalue()


def job(row: int, prompt: str = "a cat", *, columns: dict[str, Any] | None = None, **more: Any) -> JobView:
    text = json.dumps({"prompt": prompt} if columns is None else columns, ensure_ascii=False)
    known: dict[str, Any] = {"assets": (), "finished_at": 1_800_000_002.0, "submitted_at": 1_800_000_000.0}
    return view(JobSpec(row, row + 1, f"id-{row}", MODEL, b"", text), **(known | more))


def failed(row: int, why: str = "provider_error", **more: Any) -> JobView:
    return job(row, **({"state": JobState.FAILED, "error_type": why, "error_detail": "no"} | more))


def saved(path: Path | str | None, kind: str = "image/png", number: int = 1) -> AssetView:
    return AssetView(number, "saved", None if path is None else str(path), kind, 1, "ab", False, None, False)


def material(folder: Path, jobs: Sequence[JobView], name: str = "cats", **more: Any) -> Material:
    counts = Counts({state: sum(job.state is state for job in jobs) for state in JobState})
    batch = BatchRecord(
        "b", name, "f", 1, "c", "https://r", BatchState.FINISHED, None, None, False, "cats.csv", "[]", "files",
        str(folder), len(jobs), 0.0, 0.0, 1.0,
    )  # fmt: skip
    charges = {charge: len(jobs) if charge is Charge.BILLED else 0 for charge in Charge}
    cost = Cost(Decimal("0.72"), Decimal("1.20"), 0)
    known: dict[str, Any] = {
        "summary": Summary(batch, counts, charges, dict.fromkeys(AssetState, 0), {Charge.BILLED: cost}),
        "reasons": [],
        "models": [ModelLine(MODEL, len(jobs), counts[JobState.SUCCEEDED], cost)],
        "timings": [Timing(job.state, job.model, job.submitted_at, job.finished_at) for job in jobs],
        "jobs": jobs,
        "folder": folder,
        "content": lambda job_id, number: None,
    }
    return Material(**(known | more))


def rows_of(page: str) -> list[dict[str, Any]]:
    found = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    rows: list[dict[str, Any]] = json.loads(found[1])
    return rows


class TestWhatStandsInIt:
    def test_sums_costs_models_and_reasons(self, tmp_path: Path) -> None:
        reasons = [Alike(JobState.FAILED, "", "provider_error", 1, 2, "no such <size>")]
        page = report_page(material(tmp_path, [job(1), failed(2)], reasons=reasons))
        for text in (
            "of 2 rows",
            "1 failed",
            "$0.72 to $1.20",
            MODEL,
            "1 job: provider_error; row 2: no such &lt;size",
        ):
            assert text in page

    def test_a_row_tells_its_id_prompt_state_reason_charge_and_time(self, tmp_path: Path) -> None:
        (row,) = rows_of(report_page(material(tmp_path, [failed(7)])))
        told = {
            name: row[name] for name in ("row", "id", "model", "prompt", "state", "reason", "detail", "took", "charge")
        }
        assert told == {
            "row": 7,
            "id": "id-7",
            "model": MODEL,
            "prompt": "a cat",
            "state": "failed",
            "reason": "provider_error",
            "detail": "no",
            "took": "2 s",
            "charge": "billed",
        }

    def test_long_texts_are_cut(self, tmp_path: Path) -> None:
        (row,) = rows_of(report_page(material(tmp_path, [job(1, "x" * 5000)])))
        assert row["prompt"] == "x" * LONGEST_TEXT + "…"

    def test_where_a_template_makes_the_prompt_the_rows_own_columns_are_shown(self, tmp_path: Path) -> None:
        columns = {"id": "fox", "model": "acme/paint", "subject": "a fox", "style": "", "steps": 7}
        (row,) = rows_of(report_page(material(tmp_path, [job(1, columns=columns)])))
        assert row["prompt"] == "subject: a fox \N{MIDDLE DOT} steps: 7"

    def test_media_are_linked_from_where_the_page_stands(self, tmp_path: Path) -> None:
        path = tmp_path / "out" / "a b#1?.mp4"
        (row,) = rows_of(report_page(material(tmp_path / "pages", [job(1, assets=(saved(path, "video/mp4"),))])))
        (file,) = row["files"]
        assert (file["href"], file["kind"], file["name"]) == ("./../out/a%20b%231%3F.mp4", "video", "a b#1?.mp4")

    @pytest.mark.parametrize("path", [None, "s3://bucket/a.png"])
    def test_what_no_browser_opens_is_no_link(self, tmp_path: Path, path: str | None) -> None:
        (row,) = rows_of(report_page(material(tmp_path, [job(1, assets=(saved(path),))])))
        assert row["files"][0]["href"] == ""

    def test_a_lost_file_says_why(self, tmp_path: Path) -> None:
        asset = AssetView(1, "failed", None, None, None, None, False, "the media host answers 403", False)
        (row,) = rows_of(report_page(material(tmp_path, [job(1, assets=(asset,))])))
        assert row["files"][0]["lost"] == "the media host answers 403"

    @pytest.mark.parametrize(
        ("content", "text"),
        [
            ('{"content": [{"type": "text", "text": "a poem"}], "id": "x"}', "a poem"),
            ('{"candidates": [{"content": {"parts": [{"text": "one"}, {"text": "two"}]}}]}', "one\ntwo"),
            ('{"choices": [{"message": {"content": "a poem"}}]}', "a poem"),
            ('{"n": 7}', '{"n": 7}'),
            ("plain words", "plain words"),
        ],
    )
    def test_a_text_models_answer_is_shown(self, tmp_path: Path, content: str, text: str) -> None:
        (tmp_path / "a.json").write_text(content)
        (row,) = rows_of(report_page(material(tmp_path, [job(1, result_path=str(tmp_path / "a.json"))])))
        assert (row["text"], row["files"][0]["href"]) == (text, "./a.json")


class TestThumbnails:
    @pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
    def test_a_picture_becomes_a_small_one(self, kind: str) -> None:
        small = thumbnail(picture(kind))
        assert small is not None
        assert small.startswith("data:image/webp;base64,")
        assert len(small) < 3_000

    @pytest.mark.parametrize("mode", ["L", "RGBA", "LA", "P", "CMYK", "1", "I;16"])
    def test_every_mode_of_colour_is_read(self, mode: str) -> None:
        assert thumbnail(picture("TIFF" if mode == "CMYK" else "PNG", mode=mode))

    @pytest.mark.parametrize("content", [b"", b"<svg></svg>", b"\x89PNG\r\n\x1a\n", picture()[:60]])
    def test_what_cannot_be_read_has_none(self, content: bytes) -> None:
        assert thumbnail(content) is None

    def test_a_picture_that_would_fill_the_memory_has_none(self) -> None:
        assert thumbnail(picture(size=(20_000, 20_000), mode="1")) is None

    def test_only_so_many_stand_in_the_page(self, tmp_path: Path) -> None:
        (tmp_path / "a.png").write_bytes(picture())
        jobs = [job(row, assets=(saved(tmp_path / "a.png"),)) for row in (1, 2, 3)]
        rows = rows_of(report_page(material(tmp_path, jobs, most_thumbnails=2)))
        assert ["thumb" in row for row in rows] == [True, True, False]

    def test_pictures_in_the_database_are_shown_from_there(self, tmp_path: Path) -> None:
        jobs = [job(1, assets=(saved(None),))]
        (row,) = rows_of(report_page(material(tmp_path, jobs, content=lambda job_id, number: picture())))
        assert row["thumb"].startswith("data:image/webp")

    def test_a_picture_that_is_gone_is_no_fault(self, tmp_path: Path) -> None:
        jobs = [job(1, assets=(saved(tmp_path / "gone.png"),))]
        assert "thumb" not in rows_of(report_page(material(tmp_path, jobs)))[0]


class TestInABrowser:
    @pytest.fixture
    def show(self, browser: Browser, tmp_path: Path) -> Callable[..., Page]:
        def show(jobs: Sequence[JobView], width: int = 1280, **more: Any) -> Page:
            target = tmp_path / "report.html"
            target.write_text(report_page(material(tmp_path, jobs, **more)), encoding="utf-8")
            page = browser.new_page(viewport={"width": width, "height": 900})
            self.told = []
            page.on("console", lambda message: self.told.append(message.text))
            page.on("pageerror", lambda error: self.told.append(str(error)))
            page.goto(target.as_uri())
            return page

        return show

    told: list[str]

    def test_nothing_from_a_manifest_or_an_output_runs(self, show: Callable[..., Page], tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text(EVIL)
        evil: dict[str, Any] = {
            "custom_id": EVIL,
            "model": EVIL,
            "error_type": EVIL,
            "error_detail": EVIL,
            "state": JobState.FAILED,
        }
        jobs = [job(1, EVIL, **evil), job(2, EVIL, result_path=str(tmp_path / "a.txt"))]
        reasons = [Alike(JobState.FAILED, EVIL, EVIL, 1, 1, EVIL)]
        page = show(jobs, name=EVIL, reasons=reasons, models=[ModelLine(EVIL, 2, 1, Cost(Decimal(0), Decimal(0), 0))])
        assert page.evaluate("window.ran") is None
        assert page.locator(".prompt").first.text_content() == EVIL
        assert page.locator("h1").text_content() == EVIL
        assert page.locator(".card pre").text_content() == EVIL
        assert page.locator(".card script, .card img").count() == 0
        assert self.told == []

    def test_the_page_itself_allows_no_other_program_style_or_host(self, show: Callable[..., Page]) -> None:
        page = show([job(1)])
        page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran=1\">')")
        page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'window.ran=1'}))")
        refused = page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'reached', () => 'refused')")
        assert (refused, page.evaluate("window.ran")) == ("refused", None)
        assert any("Content Security Policy" in text for text in self.told)

    def test_rows_are_filtered_by_state_model_reason_and_text(self, show: Callable[..., Page]) -> None:
        page = show([job(1, "a cat"), job(2, "a dog", model="acme/paint"), failed(3), failed(4, "timeout")])
        cards, found = page.locator(".card"), page.locator("#found")
        assert (cards.count(), found.text_content()) == (4, "4 rows")
        page.select_option("select[name=state]", "failed")
        assert cards.count() == 2
        page.select_option("select[name=reason]", "timeout")
        assert (cards.count(), found.text_content()) == (1, "1 row")
        page.select_option("select[name=state]", "")
        page.select_option("select[name=reason]", "")
        page.select_option("select[name=model]", "acme/paint")
        assert cards.locator(".head span").first.text_content() == "id-2"
        page.select_option("select[name=model]", "")
        page.fill("input[name=text]", "DOG")
        assert cards.count() == 1

    def test_ten_thousand_rows_come_as_they_are_scrolled_to(self, show: Callable[..., Page]) -> None:
        page = show([job(row) for row in range(1, 10_001)])
        assert page.locator("#found").text_content() == "10,000 rows"
        first = page.locator(".card").count()
        assert first < 500
        page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
        page.wait_for_function(f"document.querySelectorAll('.card').length > {first}")

    def test_pictures_films_and_sounds_have_what_shows_them(self, show: Callable[..., Page], tmp_path: Path) -> None:
        (tmp_path / "a.png").write_bytes(picture())
        jobs = [
            job(1, assets=(saved(tmp_path / "a.png"),)),
            job(2, assets=(saved(tmp_path / "b.mp4", "video/mp4"),)),
            job(3, assets=(saved(tmp_path / "c.mp3", "audio/mpeg"),)),
            job(4, assets=(saved(tmp_path / "d.glb", "model/gltf-binary"),)),
        ]
        page = show(jobs, most_thumbnails=0)
        page.wait_for_function("document.querySelector('.card img').naturalWidth === 640")
        assert page.locator("video[controls]").get_attribute("src") == "./b.mp4"
        assert page.locator("audio[controls]").get_attribute("src") == "./c.mp3"
        assert page.locator("a[href='./d.glb']").count() == 1
        assert page.locator("a[href='./a.png'] img").count() == 1

    @pytest.mark.parametrize("width", [360, 1280])
    def test_nothing_is_wider_than_the_window(self, show: Callable[..., Page], width: int) -> None:
        page = show([job(1, "x" * 900, custom_id="y" * 300, model="a/" + "b" * 150), failed(2, "z" * 200)], width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width

    @pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
    def test_it_is_light_or_dark_as_the_reader_likes(self, show: Callable[..., Page], scheme: str, dark: bool) -> None:
        page = show([job(1)])
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(int(part) for part in re.findall(r"\d+", colour)[:3]) < 200) is dark
