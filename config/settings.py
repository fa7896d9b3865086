"""Everything that a user can set, as one frozen object.

Settings come from environment variables, then from a `.env` file in the working directory. `config/example.env`
lists them all.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from decimal import Decimal
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from dotenv import dotenv_values
from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from runner.core.addresses import is_loopback as is_loopback_address
from runner.core.addresses import is_public
from runner.core.errors import SettingsError
from runner.core.places import is_object_store

_PREFIX = "COMFY_BATCH_"
DEFAULT_ROUTER = "https://api.comfy.org"
#: How the addresses of brokers begin that speak Redis's protocol, and of those that speak RabbitMQ's.
REDIS = ("redis:", "rediss:", "redis+socket:")
RABBITMQ = ("amqp:", "amqps:", "pyamqp:")


class Settings(BaseSettings):
    """The settings of one process. Durations are seconds."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        env_file=".env",
        env_file_encoding="utf-8",
        extra="ignore",
        frozen=True,
        populate_by_name=True,
        hide_input_in_errors=True,
    )

    #: Key of the Comfy account that pays. The official SDK reads the same variable.
    api_key: Annotated[SecretStr | None, Field(validation_alias="COMFY_API_KEY")] = None
    #: Where the Router is. The official SDK reads the same variable.
    router_base_url: Annotated[str, Field(validation_alias="COMFY_ROUTER_BASE_URL")] = DEFAULT_ROUTER
    #: Folder for the database, the media and the simulator's memory.
    home: Path = Path("comfy-batch-data")
    #: SQLite or PostgreSQL; by default a SQLite file in the home folder.
    database_url: str | None = None
    #: Redis or RabbitMQ for workers in other processes; by default everything runs in the command's own process.
    broker_url: str | None = None
    #: Where media go: `files` (below the output folder), `database`, or an object store such as `s3://bucket/prefix`.
    asset_store: str = "files"
    #: How many jobs of one account may be between submitting and collected.
    max_in_flight: Annotated[int, Field(ge=1, le=10_000)] = 100
    #: Calls to the Router in a second, of all workers of the account together; by default as many as it allows.
    requests_per_second: Annotated[float | None, Field(gt=0, le=10_000)] = None
    #: So many failures of one kind in a row pause a batch; 0 for never.
    breaker: Annotated[int, Field(ge=0)] = 10
    #: On a terminal, a batch that could cost more than so many US dollars is asked about before it is sent; 0 always
    #: asks, and nothing is asked where it is empty.
    confirm_above: Annotated[Decimal | None, Field(ge=0)] = Decimal(20)
    #: Threads of one worker.
    concurrency: Annotated[int, Field(ge=1, le=256)] = 32
    #: Whether a worker keeps to one core. Python runs one thread at a time; letting them wander costs a third more.
    one_core: bool = True
    #: A poll that is due later than this waits in the database instead of in the broker, in seconds.
    longest_countdown: Annotated[float, Field(gt=0, le=3600)] = 60.0
    #: Redis hands a message out again when it was not acknowledged within so many seconds. By default there are no
    #: acknowledgements, which is faster and safe: what a dead worker held is owed by the database.
    visibility_timeout: Annotated[float | None, Field(gt=0)] = None
    #: How long one call to the Router may take.
    request_timeout: Annotated[float, Field(gt=0, le=600)] = 60.0
    #: How long the download of one media file may take.
    download_timeout: Annotated[float, Field(gt=0, le=86_400)] = 600.0
    #: Largest media file that is accepted, in bytes.
    max_asset_bytes: Annotated[int, Field(ge=1)] = 4 * 1024**3
    #: Whether media are fetched from addresses that are not everybody's, such as those of a network of one's own.
    allow_private_media: bool = False
    #: Where Flower listens.
    flower_address: str = "127.0.0.1"
    flower_port: Annotated[int, Field(ge=0, le=65_535)] = 5555
    #: `user:password` for Flower; needed to let it listen beyond this machine.
    flower_basic_auth: SecretStr | None = None
    #: Whether workers tell Flower of every task. Costs about half the throughput of the broker.
    task_events: bool = False
    #: `debug`, `info`, `warning` or `error`.
    log_level: str = "warning"

    @field_validator("api_key", mode="before")
    @classmethod
    def _trim_key(cls, value: object) -> object:
        text = value.get_secret_value() if isinstance(value, SecretStr) else value
        # A key pasted with its line break is the same key; an empty one is none.
        return (text.strip() or None) if isinstance(text, str) else value

    @field_validator("api_key")
    @classmethod
    def _sendable_key(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not (value.get_secret_value().isascii() and value.get_secret_value().isprintable()):
            raise ValueError("holds a character that no key has, such as a curly quote or a line break")
        return value

    @field_validator("flower_basic_auth")
    @classmethod
    def _usable_login(cls, value: SecretStr | None) -> SecretStr | None:
        # Flower splits its logins at commas, so that one with a comma would let a shorter password in.
        if value is not None and (":" not in value.get_secret_value() or "," in value.get_secret_value()):
            raise ValueError("must be user:password, without a comma")
        return value

    @field_validator(
        "database_url",
        "broker_url",
        "flower_basic_auth",
        "requests_per_second",
        "visibility_timeout",
        "confirm_above",
        mode="before",
    )
    @classmethod
    def _empty_is_unset(cls, value: object) -> object:
        return None if isinstance(value, str) and not value.strip() else value

    @field_validator("broker_url")
    @classmethod
    def _known_broker(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith((*REDIS, *RABBITMQ)):
            raise ValueError("must be the address of a Redis (redis://HOST:6379/0) or a RabbitMQ (amqp://USER@HOST//)")
        if value is not None and not _has_usable_port(value):
            raise ValueError("holds a port that is no number up to 65535")
        if value is not None and value.startswith(REDIS) and not _NUMBERED.search(urlsplit(value).path):
            raise ValueError("must end with the number of a Redis database, such as redis://HOST:6379/0")
        return value

    @field_validator("home")
    @classmethod
    def _plain_home(cls, value: Path) -> Path:
        # It becomes part of the database's address, where these begin something else.
        if any(character in str(value) for character in "?#%"):
            raise ValueError("must hold none of the characters ? # %")
        return value

    @field_validator("asset_store")
    @classmethod
    def _known_store(cls, value: str) -> str:
        address = urlsplit(value)
        if value in {"files", "database"}:
            return value
        if not is_object_store(value) or not address.netloc:
            raise ValueError(
                "must be `files`, `database` or the address of an object store, such as s3://bucket/folder"
            )
        if "@" in address.netloc or address.query or address.fragment:
            raise ValueError("must hold neither a key nor a query: it is shown; keys go into the store's own variables")
        return value.rstrip("/")

    @field_validator("log_level")
    @classmethod
    def _known_level(cls, value: str) -> str:
        if value.lower() not in {"debug", "info", "warning", "error"}:
            raise ValueError("must be debug, info, warning or error")
        return value.lower()

    @field_validator("router_base_url")
    @classmethod
    def _safe_router(cls, value: str) -> str:
        url = value.strip().rstrip("/") or DEFAULT_ROUTER
        parts = urlsplit(url)
        if parts.scheme not in {"https", "http"} or not parts.hostname or not _has_usable_port(url):
            raise ValueError("must be an https:// address")
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            raise ValueError(
                "must be https://, so that the key is never sent in the clear; http:// only to this machine"
            )
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("must hold neither a user nor a query: it is shown; the key goes into COMFY_API_KEY")
        return url

    @model_validator(mode="after")
    def _messages_are_handed_out_once(self) -> Settings:
        if self.visibility_timeout is None:
            return self
        if not (self.broker_url or "").startswith(REDIS):
            raise ValueError("COMFY_BATCH_VISIBILITY_TIMEOUT means something on Redis only; unset it")
        longest = self.longest_countdown + max(self.request_timeout, self.download_timeout)
        if self.visibility_timeout <= longest:
            raise ValueError(
                f"COMFY_BATCH_VISIBILITY_TIMEOUT ({self.visibility_timeout:g} s) must be longer than a message may be "
                f"held ({longest:g} s: COMFY_BATCH_LONGEST_COUNTDOWN, then COMFY_BATCH_REQUEST_TIMEOUT or "
                "COMFY_BATCH_DOWNLOAD_TIMEOUT), or Redis hands it out again and again"
            )
        return self

    @property
    def effective_database_url(self) -> str:
        """The database in use."""
        return self.database_url or f"sqlite:///{(self.home / 'comfy-batch.db').absolute()}"

    @property
    def credential_fingerprint(self) -> str:
        """Tells credentials apart without telling the key: a hash over the Router's origin and the key."""
        key = self.api_key.get_secret_value() if self.api_key else ""
        return sha256(f"comfy-batch credential\n{self.router_base_url}\n{key}".encode()).hexdigest()[:24]

    def may_fetch_from(self, address: str) -> bool:
        """Whether a media link may lead to this IP address. A Router on this machine has its media here, too."""
        if self.allow_private_media or is_public(address):
            return True
        return is_loopback_address(address) and is_loopback(urlsplit(self.router_base_url).hostname or "")

    @property
    def claim_seconds(self) -> float:
        """How long a claim on a Router call lasts: longer than the call can take."""
        return self.request_timeout * 2 + 15.0

    @property
    def download_claim_seconds(self) -> float:
        """How long a claim on a download lasts: longer than the download can take."""
        return self.download_timeout + 60.0


#: The path of a Redis address: nothing, or the number of a database; a socket's is a file.
_NUMBERED = re.compile(r"^(?:/?|/\d+|/.*/.*)$")


def _has_usable_port(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.port is None or parts.port > 0
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine, by name or by address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def load_settings(**overrides: object) -> Settings:
    """The settings in force. `overrides` (field names) go before everything; those that are `None` are not given.

    Raises `SettingsError` naming each variable that cannot be right, never its value.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**given)  # type: ignore[arg-type]  # pydantic checks them
    except UnicodeDecodeError as error:
        raise SettingsError(f"the file .env is not UTF-8 at byte {error.start}", advice="save it as UTF-8") from None
    except ValidationError as error:
        problems = "; ".join(f"{_variable(item['loc'])} {_plain(item['msg'])}".strip() for item in error.errors())
        raise SettingsError(problems, advice="see config/example.env for every setting") from None


def misspelt_settings(environment: Iterable[str], dotenv: Path = Path(".env")) -> dict[str, str | None]:
    """Names that look like settings and are none, from the environment and the `.env` file, each with the setting that
    was probably meant."""
    names = {name for name in environment if name.startswith(_PREFIX)}
    names |= {name for name in dotenv_values(dotenv) if name.startswith(_PREFIX)}
    known = set(setting_names().values())
    strange = sorted(name for name in names - known if not name.startswith(f"{_PREFIX}TEST_"))
    return {name: next(iter(get_close_matches(name, known, 1, 0.7)), None) for name in strange}


def setting_names() -> dict[str, str]:
    """Every setting: field name to environment variable."""
    return {name: _variable((name,)) for name in Settings.model_fields}


def _variable(location: tuple[object, ...]) -> str:
    if not location:
        # Of several settings together; the message names them.
        return ""
    name = str(location[0])
    shared = {"api_key": "COMFY_API_KEY", "router_base_url": "COMFY_ROUTER_BASE_URL"}
    if name.startswith("COMFY_"):
        return name
    return shared.get(name, f"COMFY_BATCH_{name.upper()}")


def _plain(message: str) -> str:
    return message.removeprefix("Value error, ").replace("Input should be", "must be")
