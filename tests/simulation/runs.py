"""What the Router keeps: requests, keys, and who owes what for which."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from random import Random

from tests.simulation.media import MediaModel, picture
from tests.simulation.scenario import Scenario

#: Buckets that a run may end with, and whether it is billed then; `None` is a matter of luck.
FAILURES: dict[str, bool | None] = {
    "content_policy_violation": True,
    "provider_error": None,
    "deadline_exceeded": None,
    "queue_timeout": False,
    "cancelled": None,
    "something_new": None,
}
DAY = 86400.0
MODEL = "acme/paint"
BASE_URL = "https://router.invalid"


@dataclass(slots=True)
class Run:
    """One paid generation: its life is decided when it is accepted."""

    id: str
    key: str
    #: Who asked for it, as the body says.
    owner: str
    #: Until then a repeat of its key is told to wait.
    admitted_at: float
    starts_at: float
    ends_at: float
    failure: str | None
    billed: bool
    #: Media files as links, and as text in the answer.
    links: int
    inline: int
    foreign: bool
    replayable: bool
    #: Before then nobody may ask, by the wait that was promised last.
    not_before: float = 0.0
    #: The links of the first read, where later reads repeat them.
    first_links: list[str] = field(default_factory=list)

    def handle(self, now: float, failure: str | None = None) -> dict[str, object]:
        """The document that names the request and where it stands."""
        base = "https://elsewhere.invalid" if self.foreign else BASE_URL
        url = f"{base}/v2/models/{MODEL}/requests/{self.id}"
        status = "IN_QUEUE" if now < self.starts_at else "IN_PROGRESS" if now < self.ends_at else "COMPLETED"
        document: dict[str, object] = {
            "request_id": self.id,
            "status": status,
            "queue_position": 1 if now < self.starts_at else 0,
            "status_url": f"{url}/status",
            "response_url": url,
            "cancel_url": f"{url}/cancel",
        }
        if failure is not None:
            document["error_type"] = failure
        return document

    def output(self, scenario: Scenario, media: MediaModel) -> bytes:
        """The model's own document."""
        links = self.first_links
        if scenario.fresh_links or not links:
            name = f"{self.id}/{{}}".format
            links = [
                media.publish(picture(self.owner, number), name(number), scenario.link_life)
                for number in range(1, self.links + 1)
            ]
        self.first_links = self.first_links or links
        inline = [
            {"b64_json": base64.b64encode(picture(self.owner, self.links + number)).decode()}
            for number in range(1, self.inline + 1)
        ]
        return json.dumps({"images": [{"url": link} for link in links], "data": inline}).encode()


def new_run(rng: Random, scenario: Scenario, number: int, key: str, owner: str, now: float, *, calm: bool) -> Run:
    """A run and its fate."""
    failure = rng.choice(list(FAILURES)) if rng.random() < 0.15 else None
    billed = failure is None
    if failure is not None:
        fixed = FAILURES[failure]
        billed = rng.random() < 0.5 if fixed is None else fixed
    starts_at = now + (rng.uniform(0, scenario.longest_run) if rng.random() < 0.3 else 0.0)
    return Run(
        id=f"req-{number}",
        key=key,
        owner=owner,
        admitted_at=now + (0.0 if calm else rng.choice((0.0, 0.0, 0.5, 5.0))),
        starts_at=starts_at,
        ends_at=starts_at + rng.uniform(0.0, scenario.longest_run),
        failure=failure,
        billed=billed,
        links=rng.choice((0, 1, 1, 1, 2)),
        inline=rng.choice((0, 0, 0, 1)),
        foreign=False,
        replayable=True,
    )


@dataclass
class Ledger:
    """Keys as the Router has met them."""

    #: Every run that a key has started.
    runs: dict[str, list[Run]] = field(default_factory=dict)
    #: The body that a key was first sent with.
    bodies: dict[str, bytes] = field(default_factory=dict)
    #: When a key was first sent without a refusal that came back.
    exposed: dict[str, float] = field(default_factory=dict)
    #: Keys by who sent them, in order.
    by_owner: dict[str, list[str]] = field(default_factory=dict)

    def note(self, key: str, body: bytes) -> str | None:
        """A key was sent with a body; says what is wrong about that."""
        owner = str(json.loads(body)["prompt"])
        first = self.bodies.setdefault(key, body)
        if first != body:
            return f"the bytes sent under {key} changed"
        keys = self.by_owner.setdefault(owner, [])
        if key not in keys:
            keys.append(key)
        return None

    def billed(self, key: str) -> int:
        """How often a key was paid for, once all runs have ended."""
        return sum(run.billed for run in self.runs.get(key, ()))

    def unfinished(self, now: float) -> set[str]:
        """Keys whose runs go on."""
        return {key for key, runs in self.runs.items() for run in runs if run.ends_at > now}
