"""Claiming a job and applying what came of it: the hot path, in prepared statements.

Every method that changes something is one transaction, and returns the messages to send once it has committed.
A message that is lost all the same is found again by its job's `wake_at`.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from hashlib import sha256
from typing import Any

from runner.core.errors import NotFound
from runner.core.expiry import links_deadline, result_deadline
from runner.core.rules.common import spread
from runner.core.types import (
    IN_FLIGHT,
    TERMINAL,
    AssetState,
    Document,
    JobState,
    MediaSource,
    Outcome,
    OutcomeKind,
    Policy,
    Step,
    Transition,
    Window,
)
from runner.store.admission import adjust_window, admit_within, finish_batch, kept_others_out, lock_credential
from runner.store.engine import Database
from runner.store.events import event_of, write_event
from runner.store.failures import note_failure, note_success
from runner.store.hot import Hot, Row, Sql
from runner.store.pacing import take_place
from runner.store.records import AssetRecord, Claim, NewResult, Place, SavedAsset, Wake
from runner.store.rows import job_of
from runner.store.spending import bounds_of, credits_used, keep_to_max_cost

#: A message is given this long to arrive before the sweeper sends another, in seconds.
GRACE = 5.0
#: How much too early a message may come that is the only one of its step, in seconds.
A_LITTLE_EARLY = 1.0
#: Longer delays than this wait in the database, not in a worker's memory or the broker, in seconds.
LONGEST_COUNTDOWN = 60.0

_CLAIM = """
UPDATE job SET claim_token = :token, claim_owner = :owner, claim_until = :until, wake_at = :until,
  paced_at = NULL {more}
WHERE id = :id AND step = :step AND due_at <= :now AND (claim_token IS NULL OR claim_until <= :now)
  AND NOT EXISTS (SELECT 1 FROM credential c
                  WHERE c.id = job.credential_id AND (c.blocked IS NOT NULL OR c.cool_down_until > :now))
  {only}
RETURNING * {also}
"""
# The key counts as used from here on; if it had gone out before, that send was never answered.
_FIRST_SEND = """, charge = CASE WHEN first_sent_at IS NULL THEN charge ELSE 'possible' END,
  first_sent_at = COALESCE(first_sent_at, :now)"""
_ACTIVE = """AND batch_id = COALESCE(:only, batch_id)
  AND EXISTS (SELECT 1 FROM batch b WHERE b.id = job.batch_id AND b.state = 'active')"""

_BODY = """, (SELECT body FROM payload p WHERE p.job_id = job.id) AS body,
  (SELECT query FROM payload p WHERE p.job_id = job.id) AS query"""

_LIMIT = ", (SELECT cancel_after FROM batch b WHERE b.id = job.batch_id) AS cancel_after"

_CLAIM_TO_READ = Sql(_CLAIM.format(more="", only="", also=_LIMIT))
_CLAIM_TO_SUBMIT = Sql(_CLAIM.format(more=_FIRST_SEND, only=_ACTIVE, also=_BODY))
_NAME = Sql("SELECT name FROM batch WHERE id = :id")
_PLACE = Sql("SELECT asset_store, output_dir, name_template FROM batch WHERE id = :id")
_BODY_OF = Sql("SELECT body FROM payload WHERE job_id = :id")
_RESULT_OF = Sql("SELECT body, content_type FROM result WHERE job_id = :id")
_MODEL = Sql("SELECT charges_on_policy_rejection, document FROM model WHERE id = :id")
_UNSETTLED = Sql("SELECT * FROM asset WHERE job_id = :id AND state = 'expected' ORDER BY attempts, number")

_WHY_NOT = Sql("""
SELECT job.*, c.cool_down_until AS cool_down_until, c.blocked AS blocked
FROM job JOIN credential c ON c.id = job.credential_id WHERE job.id = :id
""")
_POSTPONE = Sql("""
UPDATE job SET due_at = :due, wake_at = :wake, decided_at = :now, paced_at = :paced
WHERE id = :id AND claim_token IS NULL AND step = :step AND due_at < :due
""")

_APPLY = Sql("""
UPDATE job SET state = :state, step = :step, charge = :charge, attempts = :attempts, last = :last,
  recollects = :recollects, reason = :reason, error_type = :error_type, error_detail = :error_detail,
  due_at = :due_at, wake_at = :wake_at, decided_at = :now,
  deadline = CASE WHEN :keeps_deadline THEN COALESCE(:deadline, deadline) ELSE NULL END,
  claim_token = NULL, claim_owner = NULL, claim_until = NULL,
  queue_position = :queue_position, finished_at = :finished_at,
  first_sent_at = CASE WHEN :released THEN NULL ELSE first_sent_at END,
  request_id = COALESCE(:request_id, request_id), status_url = COALESCE(:status_url, status_url),
  response_url = COALESCE(:response_url, response_url), cancel_url = COALESCE(:cancel_url, cancel_url),
  estimate = COALESCE(:estimate, estimate), quote_low = COALESCE(:quote_low, quote_low),
  quote_high = COALESCE(:quote_high, quote_high), credits_used = COALESCE(:credits_used, credits_used),
  submitted_at = COALESCE(submitted_at, :submitted_at),
  cancel_asked_at = CASE WHEN :cancel_asked THEN :now ELSE cancel_asked_at END,
  submit_call_id = COALESCE(:submit_call_id, submit_call_id), read_call_id = COALESCE(:read_call_id, read_call_id)
WHERE id = :id AND claim_token = :token
""")

_RESULT = Sql("""
INSERT INTO result (job_id, request_id, content_type, body, size, sha256, path, remark, notes, received_at)
VALUES (:job_id, :request_id, :content_type, :body, :size, :sha256, :path, :remark, :notes, :now)
ON CONFLICT (job_id) DO UPDATE SET request_id = excluded.request_id, content_type = excluded.content_type,
  body = excluded.body, size = excluded.size, sha256 = excluded.sha256, path = excluded.path,
  remark = excluded.remark, notes = excluded.notes, received_at = excluded.received_at
""")
# A file that is saved stays saved, whatever a later read of the result says.
_ASSET = Sql("""
INSERT INTO asset (job_id, batch_id, number, pointer, url, secondary, declared_type, state, attempts, mismatch)
VALUES (:job_id, (SELECT batch_id FROM job WHERE id = :job_id), :number, :pointer, :url, :secondary, :declared_type,
  'expected', 0, :mismatch)
ON CONFLICT (job_id, number) DO UPDATE SET url = excluded.url, pointer = excluded.pointer, attempts = 0
WHERE asset.state = 'expected'
""")
_ASSET_SETTLED = Sql("""
UPDATE asset SET state = :state, attempts = attempts + 1, path = :path, media_type = :media_type, size = :size,
  sha256 = :sha256, mismatch = :mismatch, error = :error, saved_at = :saved_at WHERE id = :id
""")
_ASSET_CONTENT = Sql("""
INSERT INTO asset_content (asset_id, body) VALUES (:id, :body)
ON CONFLICT (asset_id) DO UPDATE SET body = excluded.body
""")
_BLOCK = Sql("""
UPDATE credential SET blocked = :reason, blocked_detail = :detail WHERE id = :id AND blocked IS NULL
""")
_PAUSE = Sql("""
UPDATE batch SET state = 'paused', pause_reason = :reason, pause_detail = :detail WHERE id = :id AND state = 'active'
""")
_COOL_DOWN = Sql("""
UPDATE credential SET cool_down_until = :until, cooled_at = :now
WHERE id = :id AND (cool_down_until IS NULL OR cool_down_until < :until)
""")


class JobStore:
    """Claims and transitions of jobs.

    Delays above `longest_countdown` seconds wait in the database instead of in a message. `breaker` failures of one
    kind in a row pause a batch; 0 for never. With `only_batch` no other batch's jobs are let in and sent; what others
    have paid for is collected all the same.
    """

    def __init__(
        self,
        database: Database,
        *,
        longest_countdown: float = LONGEST_COUNTDOWN,
        breaker: int = Policy().breaker,
        only_batch: str | None = None,
    ) -> None:
        self._database = database
        self.only_batch = only_batch
        self._longest_countdown = longest_countdown
        self._breaker = breaker
        #: Names and places never change, so they are looked up once.
        self._names: dict[str, str] = {}
        self._places: dict[str, Place] = {}

    def claim(
        self, job_id: int, step: Step, *, owner: str, now: float, lease: float, per_second: float | None = None
    ) -> Claim | Wake | None:
        """Take the job for `lease` seconds if it is due for `step` and nobody else has it.

        A `Wake` instead says that it is too early (not due, the account cools down, or its place among the
        `per_second` calls of the credential comes later); `None` that there is nothing to do: done already, claimed by
        another, or stopped until a user's command.
        """
        statement = _CLAIM_TO_SUBMIT if step is Step.SUBMIT else _CLAIM_TO_READ
        values = {
            "id": job_id,
            "step": step.value,
            "now": now,
            "owner": owner,
            "until": now + lease,
            "token": secrets.token_hex(8),
            "only": self.only_batch,
        }
        # What goes out under a key from here on must be known for ever after; the rest can be asked again.
        with self._database.hot_write("claim", durable=step is Step.SUBMIT) as hot:
            place = take_place(hot, job_id, step, now, per_second) if per_second else None
            if place is not None:
                return self._postponed(hot, place.row, step, place.at, now, paced=True)
            row = hot.row(statement, values)
            if row is None:
                return self._too_early(hot, job_id, step, now)
            assets: list[AssetRecord] = []
            if step is Step.FETCH:
                assets = [_asset_of(asset) for asset in hot.rows(_UNSETTLED, {"id": job_id})]
        claim = self._claim_of(row, step, tuple(assets))
        return replace(claim, body=bytes(row["body"]), query=row["query"]) if step is Step.SUBMIT else claim

    def _too_early(self, hot: Hot, job_id: int, step: Step, now: float) -> Wake | None:
        row = hot.row(_WHY_NOT, {"id": job_id})
        if row is None or row["step"] != step or row["blocked"] is not None:
            return None
        if row["claim_token"] is not None and row["claim_until"] > now:
            return None
        due = row["due_at"]
        if row["cool_down_until"] is not None and row["cool_down_until"] > now:
            due = max(due, row["cool_down_until"] + spread(job_of(row), row["attempts"]))
        if due <= now:
            return None
        return self._postponed(hot, row, step, due, now)

    def _postponed(self, hot: Hot, row: Row, step: Step, due: float, now: float, *, paced: bool = False) -> Wake | None:
        wake_at = self._wake_at(due, due - now)
        values = {"id": row["id"], "step": step.value, "due": due, "wake": wake_at, "now": now}
        moved = hot.run(_POSTPONE, {**values, "paced": due if paced else None})
        # A message that is far too early for a time that stood before is one of several: sent back each time, they
        # would live for as long as the job waits. If it was the only one after all, the sweeper knows the time.
        stray = not moved and due - now > A_LITTLE_EARLY
        return None if stray or due - now > self._longest_countdown else self._wake_of(row, step, due - now)

    def _wake_at(self, due: float, delay: float) -> float:
        # The message is given a moment; what has none is due for the sweeper at once.
        return due + GRACE if delay <= self._longest_countdown else due

    def _claim_of(self, row: Row, step: Step, assets: tuple[AssetRecord, ...]) -> Claim:
        return Claim(
            token=row["claim_token"],
            until=row["claim_until"],
            step=step,
            job=job_of(row),
            credential_id=row["credential_id"],
            batch_id=row["batch_id"],
            batch=self.batch_name(row["batch_id"]),
            row=row["row"],
            custom_id=row["custom_id"],
            model=row["model"],
            idempotency_key=row["idempotency_key"],
            request_id=row["request_id"],
            status_url=row["status_url"],
            response_url=row["response_url"],
            cancel_url=row["cancel_url"],
            cancel_after=None if step is Step.SUBMIT else row["cancel_after"],
            queue_position=row["queue_position"],
            due_at=row["due_at"],
            assets=assets,
        )

    def _wake_of(self, row: Row, step: Step, delay: float) -> Wake:
        name = self.batch_name(row["batch_id"])
        return Wake(row["id"], step, name, row["row"], delay, row["queue_position"])

    def batch_name(self, batch_id: str) -> str:
        """The name that people know a batch by."""
        if batch_id not in self._names:
            row = self._ask(_NAME, batch_id)
            self._names[batch_id] = row["name"]
        return self._names[batch_id]

    def place(self, batch_id: str) -> Place:
        """Where a batch's media go."""
        if batch_id not in self._places:
            row = self._ask(_PLACE, batch_id)
            self._places[batch_id] = Place(row["asset_store"], row["output_dir"], row["name_template"])
        return self._places[batch_id]

    def body(self, job_id: int) -> bytes:
        """The exact bytes of the job's request body."""
        return bytes(self._ask(_BODY_OF, job_id)["body"])

    def result_document(self, job_id: int) -> Document:
        """The job's result as it was received. Raises `NotFound` while there is none."""
        row = self._ask(_RESULT_OF, job_id)
        return Document(bytes(row["body"]), row["content_type"])

    def charges_on_policy_rejection(self, model: str) -> str:
        """The catalog's word for the model: yes, no or unknown."""
        row = self._look(_MODEL, model)
        return row["charges_on_policy_rejection"] if row else "unknown"

    def output_schema_document(self, model: str) -> str | None:
        """The model's own OpenAPI document as it was fetched; `None` where there is none."""
        row = self._look(_MODEL, model)
        return row["document"] if row else None

    def _look(self, statement: Sql, key: object) -> Row | None:
        with self._database.hot_read() as hot:
            return hot.row(statement, {"id": key})

    def _ask(self, statement: Sql, key: object) -> Row:
        row = self._look(statement, key)
        if row is None:
            raise NotFound(f"nothing is kept under {key}", advice="comfy-batch status")
        return row

    def apply(
        self,
        claim: Claim,
        outcome: Outcome,
        transition: Transition,
        now: float,
        *,
        result: NewResult | None = None,
        asset: SavedAsset | None = None,
    ) -> list[Wake] | None:
        """Write what came of a claim, and everything that follows from it, in one transaction.

        Returns the messages to send: the job's own next step, and the jobs that the window lets in. `None` means
        that the claim was lost in the meantime, and nothing was written.
        """
        with self._database.hot_write("apply") as hot:
            values = _applied(claim, outcome, transition, now)
            owed = transition.step is not None and transition.pause is None
            values["wake_at"] = self._wake_at(values["due_at"], transition.delay) if owed else None
            if result is not None:
                links = (source.url for source in result.media if source.url is not None)
                values["deadline"] = links_deadline(links, now)
            if not hot.run(_APPLY, values):
                return None
            self._tell(hot, claim, outcome, transition, now)
            if result is not None:
                _keep_result(hot, claim, outcome, result, now)
            _keep_assets(hot, claim, transition, asset, now)
            return self._follow_up(hot, claim, outcome, transition, now)

    def _tell(self, hot: Hot, claim: Claim, outcome: Outcome, transition: Transition, now: float) -> None:
        waiting_as_before = (
            outcome.kind is OutcomeKind.NOT_READY
            and claim.job.last is OutcomeKind.NOT_READY
            and transition.state is claim.job.state
        )
        if waiting_as_before:
            return
        write_event(hot, event_of(claim.job, outcome, transition, now))

    def _follow_up(self, hot: Hot, claim: Claim, outcome: Outcome, transition: Transition, now: float) -> list[Wake]:
        wakes = []
        if transition.step is not None and transition.pause is None and transition.delay <= self._longest_countdown:
            wakes.append(
                Wake(claim.job.id, transition.step, claim.batch, claim.row, transition.delay, outcome.queue_position)
            )
        leaves = claim.job.state in IN_FLIGHT and transition.state not in IN_FLIGHT
        if claim.job.state is JobState.DOWNLOADING and transition.state in TERMINAL:
            leaves = kept_others_out(hot, claim.credential_id)
        if leaves or transition.window is not Window.KEEP or transition.pause or transition.cool_down:
            # Locks are taken in one order everywhere: job, credential, batch.
            credential = lock_credential(hot, claim.credential_id)
            _keep_pauses(hot, claim, outcome, transition, now)
            credential = adjust_window(hot, credential, transition.window, now)
            if leaves and transition.pause is None:
                wakes.extend(admit_within(hot, credential, now, self.batch_name, self.only_batch))
        if outcome.handle is not None:
            keep_to_max_cost(hot, claim.batch_id, outcome.handle)
        if outcome.kind in (OutcomeKind.RESULT, OutcomeKind.ACCEPTED):
            note_success(hot, claim.batch_id, outcome)
        elif transition.state is JobState.FAILED:
            note_failure(hot, claim.batch_id, outcome, transition, self._breaker)
        if transition.state in TERMINAL:
            finish_batch(hot, claim.batch_id, now)
        return wakes


def _asset_of(row: Row) -> AssetRecord:
    source = MediaSource(row["pointer"], row["url"], bool(row["secondary"]), row["declared_type"])
    return AssetRecord(row["id"], row["number"], source, AssetState(row["state"]), row["attempts"])


def _applied(claim: Claim, outcome: Outcome, transition: Transition, now: float) -> dict[str, Any]:
    handle = outcome.handle
    is_submit = claim.step is Step.SUBMIT
    return {
        "id": claim.job.id,
        "token": claim.token,
        "state": transition.state.value,
        "step": transition.step.value if transition.step else None,
        "charge": transition.charge.value,
        "attempts": transition.attempts,
        "last": outcome.kind.value,
        "recollects": transition.recollects,
        "reason": transition.reason.value if transition.reason else None,
        "error_type": transition.error_type,
        "error_detail": transition.error_detail,
        "now": now,
        "due_at": now + transition.delay,
        "deadline": result_deadline(now) if handle else None,
        "keeps_deadline": transition.state not in TERMINAL,
        "queue_position": outcome.queue_position,
        "finished_at": now if transition.state in TERMINAL else None,
        "released": transition.key_released,
        "cancel_asked": transition.cancel_asked,
        "request_id": handle.request_id if handle else None,
        "status_url": handle.status_url if handle else None,
        "response_url": handle.response_url if handle else None,
        "cancel_url": handle.cancel_url if handle else None,
        "estimate": json.dumps(handle.estimate) if handle and handle.estimate else None,
        **bounds_of(handle),
        "credits_used": credits_used(outcome.notes),
        "submitted_at": now if handle else None,
        "submit_call_id": outcome.call_id if is_submit else None,
        "read_call_id": None if is_submit else outcome.call_id,
    }


def _keep_result(hot: Hot, claim: Claim, outcome: Outcome, result: NewResult, now: float) -> None:
    body = result.document.body
    hot.run(
        _RESULT,
        {
            "job_id": claim.job.id,
            "request_id": claim.request_id,
            "content_type": result.document.content_type,
            "body": body,
            "size": len(body),
            "sha256": sha256(body).hexdigest(),
            "path": result.path,
            "remark": result.remark,
            "notes": json.dumps(dict(outcome.notes)),
            "now": now,
        },
    )
    if result.media:
        hot.run_many(
            _ASSET,
            [
                {
                    "job_id": claim.job.id,
                    "number": number,
                    "pointer": source.pointer,
                    "url": source.url,
                    "secondary": source.secondary,
                    "declared_type": source.declared_type,
                    "mismatch": False,
                }
                for number, source in enumerate(result.media, start=1)
            ],
        )


def _keep_assets(hot: Hot, claim: Claim, transition: Transition, asset: SavedAsset | None, now: float) -> None:
    if asset is not None and transition.asset is not None:
        saved = transition.asset is AssetState.SAVED
        hot.run(
            _ASSET_SETTLED,
            {
                "id": asset.asset_id,
                "state": transition.asset.value,
                "path": asset.path,
                "media_type": asset.media_type,
                "size": asset.size,
                "sha256": asset.sha256,
                "mismatch": asset.mismatch,
                "error": asset.error,
                "saved_at": now if saved else None,
            },
        )
        if saved and asset.content is not None:
            hot.run(_ASSET_CONTENT, {"id": asset.asset_id, "body": asset.content})


def _keep_pauses(hot: Hot, claim: Claim, outcome: Outcome, transition: Transition, now: float) -> None:
    if transition.cool_down is not None:
        hot.run(_COOL_DOWN, {"id": claim.credential_id, "until": now + transition.cool_down, "now": now})
    if transition.pause is not None:
        whole = transition.pause.whole_credential
        hot.run(
            _BLOCK if whole else _PAUSE,
            {
                "id": claim.credential_id if whole else claim.batch_id,
                "reason": transition.pause.reason,
                "detail": outcome.detail,
            },
        )
