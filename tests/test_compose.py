"""The Docker files, held to what docs/docker.md promises. No Docker is needed."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from config.settings import setting_names
from runner.cli.main import app
from runner.store.batches import BatchStore
from runner.store.engine import Database
from runner.store.jobs import JobStore
from runner.store.migrate import migrate
from runner.store.upkeep import UpkeepStore, WorkerInfo

ROOT = Path(__file__).parents[1]
COMPOSE_TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]

#: Services that run this program.
OURS = ("migrate", "worker", "flower", "cli")
#: Variables that the other images or the drivers read, or that only the compose file does.
COMPOSE_ONLY = {"POSTGRES_USER", "POSTGRES_DB", "POSTGRES_PASSWORD", "PGPASSWORD", "DATA_DIR", "DATA_UID"}
#: Settings that a worker in a container takes from no `.env`: Flower's are Flower's.
FLOWERS = {"COMFY_BATCH_FLOWER_ADDRESS", "COMFY_BATCH_FLOWER_PORT", "COMFY_BATCH_FLOWER_BASIC_AUTH"}

_REFERENCE = re.compile(r"\$\{(?P<name>\w+)(?P<rest>[^}]*)\}")
_SECRET = re.compile(r"KEY|PASSWORD|AUTH|SECRET|TOKEN")


def environment(service: str) -> dict[str, str | None]:
    """What the service's process gets; `None` is passed on."""
    found: dict[str, str | None] = SERVICES[service].get("environment", {})
    return found


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions with their arguments."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def test_the_services_are_those_of_the_documentation() -> None:
    assert set(SERVICES) == {"redis", "postgres", *OURS}


@pytest.mark.parametrize("service", ["redis", "postgres", "worker", "flower"])
def test_what_runs_for_long_is_checked_and_restarted(service: str) -> None:
    assert SERVICES[service]["restart"] == "unless-stopped"
    check = SERVICES[service]["healthcheck"]
    assert check["test"][0] in {"CMD", "CMD-SHELL"}
    assert {"interval", "timeout", "retries", "start_period"} <= set(check)


def test_migration_runs_once_and_before_whatever_uses_the_tables() -> None:
    assert SERVICES["migrate"]["restart"] == "no"
    assert SERVICES["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    for service in ("worker", "cli"):
        assert SERVICES[service]["depends_on"] == {
            "migrate": {"condition": "service_completed_successfully"},
            "postgres": {"condition": "service_healthy"},
            "redis": {"condition": "service_healthy"},
        }
    assert SERVICES["flower"]["depends_on"] == {"redis": {"condition": "service_healthy"}}


def test_migration_needs_no_key() -> None:
    assert "COMFY_API_KEY" not in environment("migrate")
    assert "COMFY_API_KEY" not in environment("flower")


def test_workers_scale() -> None:
    worker = SERVICES["worker"]
    # A fixed name or a published port can be had by one container only.
    assert not {"container_name", "hostname", "ports", "network_mode"} & set(worker)
    assert int(worker["stop_grace_period"].removesuffix("s")) > 60


def test_only_flower_is_published_and_only_to_this_machine() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {"flower": ["127.0.0.1:${COMFY_BATCH_FLOWER_PORT:-5555}:5555"]}
    assert not any("network_mode" in service for service in SERVICES.values())


def test_flower_does_not_start_without_a_password() -> None:
    given = environment("flower")
    assert given["COMFY_BATCH_FLOWER_ADDRESS"] == "0.0.0.0"
    assert (given["COMFY_BATCH_FLOWER_BASIC_AUTH"] or "").startswith("${COMFY_BATCH_FLOWER_BASIC_AUTH:?set ")


def test_redis_and_postgres_keep_what_they_hold() -> None:
    redis = SERVICES["redis"]["command"]
    assert redis[redis.index("--appendonly") + 1] == "yes"
    assert SERVICES["redis"]["volumes"] == ["redis-data:/data"]
    assert SERVICES["postgres"]["volumes"] == ["postgres-data:/var/lib/postgresql/data"]
    assert set(COMPOSE["volumes"]) == {"redis-data", "postgres-data"}


def test_media_and_manifests_are_shared_by_workers_and_commands() -> None:
    assert SERVICES["worker"]["volumes"] == SERVICES["cli"]["volumes"] == ["${DATA_DIR:-./comfy-batch-data}:/data"]
    assert environment("worker")["COMFY_BATCH_HOME"] == environment("cli")["COMFY_BATCH_HOME"] == "/data"


def test_commands_see_what_workers_see() -> None:
    assert environment("cli") == environment("worker")
    assert SERVICES["cli"]["profiles"] == ["cli"]


def test_no_secret_is_written_down_or_has_a_default() -> None:
    for service in SERVICES:
        for name, value in environment(service).items():
            if value is not None and _SECRET.search(name):
                reference = _REFERENCE.fullmatch(value)
                assert reference, f"{service}: {name} is no reference"
                assert reference["rest"].startswith(f":?set {reference['name']}"), f"{service}: {name} has a default"
            # user:password@host
            assert not re.search(r"//[^/\s]*:[^/\s]*@", value or ""), f"{service}: {name} holds a password"


def test_every_variable_is_known() -> None:
    known = set(setting_names().values()) | COMPOSE_ONLY
    named = {name for service in SERVICES for name in environment(service)}
    referred = {match["name"] for match in _REFERENCE.finditer(COMPOSE_TEXT)}
    assert named | referred <= known


def test_every_setting_reaches_the_workers() -> None:
    assert set(setting_names().values()) - FLOWERS <= set(environment("worker"))


def test_every_compose_only_variable_of_a_user_is_documented() -> None:
    text = (ROOT / "docs" / "docker.md").read_text()
    referred = {match["name"] for match in _REFERENCE.finditer(COMPOSE_TEXT)}
    assert {name for name in referred if f"`{name}`" not in text} == set()


@pytest.mark.parametrize("service", OURS)
def test_each_command_is_one_of_the_programs(service: str) -> None:
    group = typer.main.get_command(app)
    known: dict[str, object] = getattr(group, "commands", {})
    assert SERVICES[service]["command"][0] in known
    assert "entrypoint" not in SERVICES[service]


@pytest.mark.parametrize("service", OURS)
def test_ours_run_without_privileges(service: str) -> None:
    assert SERVICES[service]["user"] == "${DATA_UID:-10001}:10001"
    assert SERVICES[service]["cap_drop"] == ["ALL"]
    assert SERVICES[service]["security_opt"] == ["no-new-privileges:true"]
    assert not SERVICES[service].get("privileged")
    # Else nobody passes SIGTERM on to commands that do not expect it.
    assert SERVICES[service]["init"] is True


@pytest.mark.parametrize("seen", [True, False])
def test_the_health_of_a_worker_is_whether_it_was_seen_lately(tmp_path: Path, seen: bool) -> None:
    url = f"sqlite:///{tmp_path / 'health.db'}"
    database = Database(url)
    migrate(database)
    credential = BatchStore(database).credential("fingerprint", "https://router.test", 4)
    worker = WorkerInfo("a", credential, socket.gethostname(), 1, 4)
    UpkeepStore(database, JobStore(database)).seen(worker, time.time() - (0 if seen else 120))
    database.close()
    form, program, *arguments = SERVICES["worker"]["healthcheck"]["test"]
    assert (form, program) == ("CMD", "python")
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=tmp_path,
        env={**os.environ, "COMFY_BATCH_DATABASE_URL": url, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (0 if seen else 1), done.stderr
    assert seen or "not seen" in done.stderr


def test_the_image_runs_as_a_user_that_is_not_root() -> None:
    users = [rest for word, rest in instructions() if word == "USER"]
    assert users == ["10001:10001"]
    last = [word for word, _ in instructions()]
    assert last.index("USER") > max(place for place, word in enumerate(last) if word in {"RUN", "COPY"})


def test_the_image_installs_what_is_locked_and_starts_the_command() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert "install --require-hashes -r requirements/runtime.lock" in text
    assert "install --no-deps --no-build-isolation ." in text
    assert ("ENTRYPOINT", '["comfy-batch"]') in instructions()
    assert ("STOPSIGNAL", "SIGTERM") in instructions()
    assert "PYTHONUNBUFFERED=1" in text


def test_no_secret_gets_into_a_layer() -> None:
    for word, rest in instructions():
        assert word != "ADD"
        assert word not in {"ARG", "ENV"} or not _SECRET.search(rest)
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in allowed if line and not line.startswith("#")]
    assert rules[0] == "*"
    # Whatever is copied from here is let through, and nothing else is.
    sources = {
        source
        for word, rest in instructions()
        if word == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    }
    assert {rule.removeprefix("!") for rule in rules if rule.startswith("!")} == sources
    assert "**/.env" in rules
    assert all((ROOT / source).exists() for source in sources)
