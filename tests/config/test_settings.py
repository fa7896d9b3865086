"""Settings: where they come from, what is refused, and what is never shown."""

from __future__ import annotations

import os
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from config.settings import DEFAULT_ROUTER, Settings, is_loopback, load_settings, setting_names
from runner.core.errors import SettingsError

KEY = "comfyui-0123456789abcdef"
EXAMPLE = Path(__file__).parents[2] / "config" / "example.env"

#: Field, variable, a value for it, and what it must become.
EVERY_SETTING: list[tuple[str, str, str, Any]] = [
    ("api_key", "COMFY_API_KEY", KEY, SecretStr(KEY)),
    ("router_base_url", "COMFY_ROUTER_BASE_URL", "https://router.example", "https://router.example"),
    ("home", "COMFY_BATCH_HOME", "/srv/comfy", Path("/srv/comfy")),
    ("database_url", "COMFY_BATCH_DATABASE_URL", "postgresql://u:p@db/x", "postgresql://u:p@db/x"),
    ("broker_url", "COMFY_BATCH_BROKER_URL", "redis://redis:6379/1", "redis://redis:6379/1"),
    ("asset_store", "COMFY_BATCH_ASSET_STORE", "database", "database"),
    ("max_in_flight", "COMFY_BATCH_MAX_IN_FLIGHT", "7", 7),
    ("requests_per_second", "COMFY_BATCH_REQUESTS_PER_SECOND", "2.5", 2.5),
    ("breaker", "COMFY_BATCH_BREAKER", "0", 0),
    ("confirm_above", "COMFY_BATCH_CONFIRM_ABOVE", "12.50", Decimal("12.50")),
    ("longest_countdown", "COMFY_BATCH_LONGEST_COUNTDOWN", "30", 30.0),
    ("visibility_timeout", "COMFY_BATCH_VISIBILITY_TIMEOUT", "7200", 7200.0),
    ("concurrency", "COMFY_BATCH_CONCURRENCY", "3", 3),
    ("one_core", "COMFY_BATCH_ONE_CORE", "false", False),
    ("request_timeout", "COMFY_BATCH_REQUEST_TIMEOUT", "12.5", 12.5),
    ("download_timeout", "COMFY_BATCH_DOWNLOAD_TIMEOUT", "99", 99.0),
    ("max_asset_bytes", "COMFY_BATCH_MAX_ASSET_BYTES", "1000", 1000),
    ("allow_private_media", "COMFY_BATCH_ALLOW_PRIVATE_MEDIA", "1", True),
    ("flower_address", "COMFY_BATCH_FLOWER_ADDRESS", "0.0.0.0", "0.0.0.0"),
    ("flower_port", "COMFY_BATCH_FLOWER_PORT", "0", 0),
    ("flower_basic_auth", "COMFY_BATCH_FLOWER_BASIC_AUTH", "me:pw", SecretStr("me:pw")),
    ("task_events", "COMFY_BATCH_TASK_EVENTS", "true", True),
    ("log_level", "COMFY_BATCH_LOG_LEVEL", "DEBUG", "debug"),
]


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable and no `.env` file of the machine's own."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.upper().startswith("COMFY_"):
            monkeypatch.delenv(name)


class TestSources:
    @pytest.mark.parametrize(("field", "variable", "text", "value"), EVERY_SETTING, ids=lambda part: str(part)[:30])
    def test_each_setting_is_read_from_its_variable(
        self, monkeypatch: pytest.MonkeyPatch, field: str, variable: str, text: str, value: object
    ) -> None:
        if field == "visibility_timeout":
            monkeypatch.setenv("COMFY_BATCH_BROKER_URL", "redis://redis:6379/0")
        assert getattr(load_settings(), field) != value
        monkeypatch.setenv(variable, text)
        assert getattr(load_settings(), field) == value
        assert setting_names()[field] == variable

    @pytest.mark.parametrize("field", ["requests_per_second", "visibility_timeout", "database_url", "broker_url"])
    def test_an_empty_variable_is_an_unset_one(self, monkeypatch: pytest.MonkeyPatch, field: str) -> None:
        monkeypatch.setenv(setting_names()[field], " ")
        assert getattr(load_settings(), field) is None

    def test_no_setting_is_missing_from_these_tests(self) -> None:
        assert {field for field, *_ in EVERY_SETTING} == set(Settings.model_fields)

    def test_a_dotenv_file_in_the_working_directory_is_read(self) -> None:
        Path(".env").write_text(f"COMFY_API_KEY={KEY}\nCOMFY_BATCH_CONCURRENCY=5\nSOMETHING_ELSE=1\n")
        settings = load_settings()
        assert (settings.api_key, settings.concurrency) == (SecretStr(KEY), 5)

    def test_the_environment_goes_before_the_file_and_flags_before_both(self, monkeypatch: pytest.MonkeyPatch) -> None:
        Path(".env").write_text("COMFY_BATCH_CONCURRENCY=5\nCOMFY_BATCH_MAX_IN_FLIGHT=50\n")
        monkeypatch.setenv("COMFY_BATCH_CONCURRENCY", "6")
        settings = load_settings()
        assert (settings.concurrency, settings.max_in_flight) == (6, 50)
        assert load_settings(concurrency=7).concurrency == 7
        assert load_settings(concurrency=None).concurrency == 6

    @pytest.mark.parametrize("variable", ["API_KEY", "api_key"])
    def test_another_programs_key_is_not_taken_for_comfys(self, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
        monkeypatch.setenv(variable, "key-of-another-service")
        assert load_settings().api_key is None

    @pytest.mark.parametrize("variable", ["ROUTER_BASE_URL", "router_base_url"])
    def test_another_programs_address_is_not_taken_for_the_routers(
        self, monkeypatch: pytest.MonkeyPatch, variable: str
    ) -> None:
        monkeypatch.setenv(variable, "https://elsewhere.example")
        assert load_settings().router_base_url == DEFAULT_ROUTER

    def test_they_cannot_be_changed_once_made(self) -> None:
        settings = load_settings()
        with pytest.raises(ValidationError):
            settings.concurrency = 3  # type: ignore[misc]  # that it is refused is the point


class TestTheKey:
    @pytest.mark.parametrize("written", [f"{KEY}\n", f"  {KEY}\t", f"{KEY}\r\n", KEY])
    def test_p7_white_space_and_line_breaks_around_it_are_trimmed(
        self, monkeypatch: pytest.MonkeyPatch, written: str
    ) -> None:
        monkeypatch.setenv("COMFY_API_KEY", written)
        assert load_settings().api_key == SecretStr(KEY)
        assert load_settings(api_key=written).api_key == SecretStr(KEY)

    @pytest.mark.parametrize("written", ["", "  ", "\n"])
    def test_an_empty_one_is_none(self, monkeypatch: pytest.MonkeyPatch, written: str) -> None:
        monkeypatch.setenv("COMFY_API_KEY", written)
        assert load_settings().api_key is None

    def test_p7_it_is_never_shown(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COMFY_API_KEY", KEY)
        monkeypatch.setenv("COMFY_BATCH_FLOWER_BASIC_AUTH", "me:pw-of-flower")
        settings = load_settings()
        shown = f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()}"
        assert KEY not in shown
        assert "pw-of-flower" not in shown

    def test_its_fingerprint_tells_keys_and_routers_apart_without_telling_the_key(self) -> None:
        one = load_settings(api_key=KEY)
        assert one.credential_fingerprint == load_settings(api_key=f"{KEY}\n").credential_fingerprint
        others = [load_settings(api_key="other"), load_settings(api_key=KEY, router_base_url="https://b.example")]
        assert one.credential_fingerprint not in {other.credential_fingerprint for other in others}
        assert KEY not in one.credential_fingerprint
        assert re.fullmatch("[0-9a-f]{24}", one.credential_fingerprint)


class TestTheRoutersAddress:
    @pytest.mark.parametrize(
        "address", ["http://127.0.0.1:8188", "http://localhost", "http://[::1]:80", "http://127.9.9.9"]
    )
    def test_plain_http_is_allowed_to_this_machine(self, address: str) -> None:
        assert load_settings(router_base_url=address).router_base_url == address

    @pytest.mark.parametrize(
        "address",
        [
            "http://api.comfy.org",
            "http://10.0.0.1",
            "http://localhost.evil.example",
            "http://127.0.0.1.evil.example",
            "http://127.0.0.1@evil.example",
            "http://0.0.0.0",
        ],
    )
    def test_plain_http_to_any_other_is_refused(self, address: str) -> None:
        with pytest.raises(SettingsError, match="COMFY_ROUTER_BASE_URL must be https://"):
            load_settings(router_base_url=address)

    @pytest.mark.parametrize("address", ["api.comfy.org", "ftp://api.comfy.org", "https://", "file:///etc/passwd"])
    def test_what_is_no_address_is_refused(self, address: str) -> None:
        with pytest.raises(SettingsError, match="COMFY_ROUTER_BASE_URL"):
            load_settings(router_base_url=address)

    def test_a_slash_at_its_end_and_white_space_are_dropped(self) -> None:
        assert load_settings(router_base_url=" https://r.example/ \n").router_base_url == "https://r.example"

    def test_an_empty_one_is_the_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COMFY_ROUTER_BASE_URL", "")
        assert load_settings().router_base_url == DEFAULT_ROUTER

    def test_loopback_is_told_by_name_or_number(self) -> None:
        assert [is_loopback(host) for host in ("LOCALHOST", "::1", "127.0.0.2", "comfy.org", "")] == [
            True,
            True,
            True,
            False,
            False,
        ]


class TestRefusals:
    @pytest.mark.parametrize(
        ("variable", "value"),
        [
            ("COMFY_BATCH_ASSET_STORE", "cloud-7"),
            ("COMFY_BATCH_LOG_LEVEL", "chatty-7"),
            ("COMFY_BATCH_CONCURRENCY", "many-7"),
            ("COMFY_BATCH_CONCURRENCY", "700000"),
            ("COMFY_BATCH_MAX_IN_FLIGHT", "-77"),
            ("COMFY_BATCH_REQUEST_TIMEOUT", "-77"),
            ("COMFY_BATCH_REQUEST_TIMEOUT", "nan"),
            ("COMFY_BATCH_DOWNLOAD_TIMEOUT", "inf"),
            ("COMFY_BATCH_MAX_ASSET_BYTES", "-77"),
            ("COMFY_BATCH_FLOWER_PORT", "777777"),
            ("COMFY_BATCH_TASK_EVENTS", "perhaps-7"),
            ("COMFY_ROUTER_BASE_URL", "ftp://user:secret@host-7"),
        ],
    )
    def test_a_value_that_cannot_be_is_refused_naming_the_variable_and_not_the_value(
        self, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
    ) -> None:
        monkeypatch.setenv(variable, value)
        with pytest.raises(SettingsError) as caught:
            load_settings()
        assert variable in caught.value.message
        assert value not in f"{caught.value.message} {caught.value.advice}"
        assert caught.value.__cause__ is None
        assert "example.env" in (caught.value.advice or "")

    def test_every_wrong_setting_is_named_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COMFY_BATCH_CONCURRENCY", "x")
        monkeypatch.setenv("COMFY_BATCH_FLOWER_PORT", "y")
        with pytest.raises(SettingsError, match=r"COMFY_BATCH_CONCURRENCY.*COMFY_BATCH_FLOWER_PORT"):
            load_settings()

    @pytest.mark.parametrize("field", ["database_url", "broker_url", "flower_basic_auth"])
    def test_an_empty_address_or_password_is_unset(self, monkeypatch: pytest.MonkeyPatch, field: str) -> None:
        monkeypatch.setenv(setting_names()[field], " ")
        assert getattr(load_settings(), field) is None


class TestWhatFollows:
    def test_the_database_stands_in_the_home_folder_unless_another_is_named(self, tmp_path: Path) -> None:
        settings = load_settings(home=Path("data"))
        assert settings.effective_database_url == f"sqlite:///{tmp_path / 'data' / 'comfy-batch.db'}"
        assert load_settings(database_url="postgresql://h/x").effective_database_url == "postgresql://h/x"

    def test_a_claim_lasts_longer_than_what_is_done_under_it(self) -> None:
        settings = load_settings(request_timeout=600, download_timeout=86_400)
        assert settings.claim_seconds > settings.request_timeout
        assert settings.download_claim_seconds > settings.download_timeout


class TestTheExampleFile:
    def test_every_setting_stands_in_it_once_commented_and_explained(self) -> None:
        lines = EXAMPLE.read_text().splitlines()
        found = [re.match(r"# ([A-Z_]+)=", line) for line in lines]
        names = [match.group(1) for match in found if match]
        assert sorted(names) == sorted(setting_names().values())
        explanations = [lines[at - 1] for at, match in enumerate(found) if match]
        assert all(re.match(r"# \S", line) and "=" not in line for line in explanations)

    def test_as_it_stands_it_changes_nothing(self) -> None:
        before = load_settings()
        Path(".env").write_text(EXAMPLE.read_text())
        assert load_settings() == before

    def test_uncommented_it_is_accepted_and_names_the_defaults(self) -> None:
        before = load_settings()
        Path(".env").write_text(re.sub(r"^# (?=[A-Z_]+=)", "", EXAMPLE.read_text(), flags=re.MULTILINE))
        after = load_settings()
        optional = {"database_url", "broker_url"}
        assert after.model_dump(exclude=optional) == before.model_dump(exclude=optional)


class TestVisibilityTimeout:
    """A start refuses what would make Redis hand a message out while it is still held."""

    @pytest.fixture(autouse=True)
    def _redis(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COMFY_BATCH_BROKER_URL", "redis://redis:6379/0")

    @pytest.mark.parametrize(
        ("countdown", "request_timeout", "download", "visibility"),
        [("5", "1", "1", "2"), ("60", "60", "600", "600"), ("60", "60", "600", "660"), ("3600", "1", "1", "3600")],
    )
    def test_one_that_is_shorter_than_a_message_is_held_is_refused_naming_both(
        self, monkeypatch: pytest.MonkeyPatch, countdown: str, request_timeout: str, download: str, visibility: str
    ) -> None:
        monkeypatch.setenv("COMFY_BATCH_LONGEST_COUNTDOWN", countdown)
        monkeypatch.setenv("COMFY_BATCH_REQUEST_TIMEOUT", request_timeout)
        monkeypatch.setenv("COMFY_BATCH_DOWNLOAD_TIMEOUT", download)
        monkeypatch.setenv("COMFY_BATCH_VISIBILITY_TIMEOUT", visibility)
        with pytest.raises(SettingsError) as caught:
            load_settings()
        assert f"COMFY_BATCH_VISIBILITY_TIMEOUT ({visibility} s)" in caught.value.message
        assert "COMFY_BATCH_LONGEST_COUNTDOWN" in caught.value.message

    def test_a_longer_one_is_taken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COMFY_BATCH_VISIBILITY_TIMEOUT", "661")
        assert load_settings().visibility_timeout == 661

    @pytest.mark.parametrize("broker", ["", "amqp://guest@localhost//"])
    def test_where_there_is_no_redis_it_is_refused(self, monkeypatch: pytest.MonkeyPatch, broker: str) -> None:
        monkeypatch.setenv("COMFY_BATCH_BROKER_URL", broker)
        monkeypatch.setenv("COMFY_BATCH_VISIBILITY_TIMEOUT", "7200")
        with pytest.raises(SettingsError, match="on Redis only"):
            load_settings()


class TestWhereMediaMayBe:
    @pytest.mark.parametrize(
        ("router", "allowed", "address", "may"),
        [
            ("https://api.comfy.org", "", "8.8.8.8", True),
            ("https://api.comfy.org", "", "127.0.0.1", False),
            ("https://api.comfy.org", "", "10.0.0.1", False),
            ("https://api.comfy.org", "1", "10.0.0.1", True),
            ("http://127.0.0.1:8000", "", "127.0.0.1", True),
            ("http://localhost:8000", "", "::1", True),
            ("http://127.0.0.1:8000", "", "10.0.0.1", False),
        ],
    )
    def test_everywhere_public_and_on_this_machine_where_the_router_is_here(
        self, monkeypatch: pytest.MonkeyPatch, router: str, allowed: str, address: str, may: bool
    ) -> None:
        monkeypatch.setenv("COMFY_ROUTER_BASE_URL", router)
        if allowed:
            monkeypatch.setenv("COMFY_BATCH_ALLOW_PRIVATE_MEDIA", allowed)
        assert load_settings().may_fetch_from(address) is may


class TestWhereMediaGo:
    @pytest.mark.parametrize("store", ["files", "database", "s3://bucket/a/b", "gs://bucket", "az://container/x"])
    def test_a_place_that_there_is(self, monkeypatch: pytest.MonkeyPatch, store: str) -> None:
        monkeypatch.setenv("COMFY_BATCH_ASSET_STORE", f"{store}/" if "://" in store else store)
        assert load_settings().asset_store == store

    @pytest.mark.parametrize(
        "store",
        ["tape", "", "s3://", "ftp://host/x", "https://bucket.invalid/x", "s3://key:secret@bucket/x", "s3://b/x?sig=1"],
    )
    def test_anything_else_is_refused_without_being_repeated(self, monkeypatch: pytest.MonkeyPatch, store: str) -> None:
        monkeypatch.setenv("COMFY_BATCH_ASSET_STORE", store)
        with pytest.raises(SettingsError, match="COMFY_BATCH_ASSET_STORE") as caught:
            load_settings()
        assert "secret" not in str(caught.value)
