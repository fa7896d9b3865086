"""The tables of the first release."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From the revision before to this one."""
    op.create_table(
        "credential",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("router", sa.String(), nullable=False),
        sa.Column("window_size", sa.Double(), nullable=False),
        sa.Column("window_max", sa.Integer(), nullable=False),
        sa.Column("shrunk_at", sa.Double(), nullable=True),
        sa.Column("cool_down_until", sa.Double(), nullable=True),
        sa.Column("blocked", sa.String(), nullable=True),
        sa.Column("blocked_detail", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("fingerprint"),
    )
    op.create_table(
        "lease",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("until", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "model",
        sa.Column("id", sa.String(length=193), nullable=False),
        sa.Column("charges_on_policy_rejection", sa.String(), nullable=False),
        sa.Column("etag", sa.String(), nullable=True),
        sa.Column("document", sa.Text(), nullable=True),
        sa.Column("fetched_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "batch",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("credential_id", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("pause_reason", sa.String(), nullable=True),
        sa.Column("pause_detail", sa.String(), nullable=True),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("manifest", sa.String(), nullable=False),
        sa.Column("columns", sa.Text(), nullable=False),
        sa.Column("asset_store", sa.String(), nullable=False),
        sa.Column("output_dir", sa.String(), nullable=False),
        sa.Column("total", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["credential_id"],
            ["credential.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_index("ix_batch_credential_id", "batch", ["credential_id"])
    op.create_index("ix_batch_fingerprint", "batch", ["fingerprint"])

    op.create_table(
        "worker",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("credential_id", sa.Integer(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("concurrency", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["credential_id"],
            ["credential.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "job",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("batch_id", sa.String(length=32), nullable=False),
        sa.Column("credential_id", sa.Integer(), nullable=False),
        sa.Column("row", sa.Integer(), nullable=False),
        sa.Column("custom_id", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("step", sa.String(), nullable=True),
        sa.Column("charge", sa.String(), nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("idempotency_key", sa.String(length=255), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("last", sa.String(), nullable=True),
        sa.Column("recollects", sa.Integer(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("error_type", sa.String(), nullable=True),
        sa.Column("error_detail", sa.Text(), nullable=True),
        sa.Column("due_at", sa.Double(), nullable=False),
        sa.Column("wake_at", sa.Double(), nullable=True),
        sa.Column("claim_token", sa.String(), nullable=True),
        sa.Column("claim_owner", sa.String(), nullable=True),
        sa.Column("claim_until", sa.Double(), nullable=True),
        sa.Column("request_id", sa.String(), nullable=True),
        sa.Column("status_url", sa.String(), nullable=True),
        sa.Column("response_url", sa.String(), nullable=True),
        sa.Column("cancel_url", sa.String(), nullable=True),
        sa.Column("queue_position", sa.Integer(), nullable=True),
        sa.Column("estimate", sa.Text(), nullable=True),
        sa.Column("submit_call_id", sa.String(), nullable=True),
        sa.Column("read_call_id", sa.String(), nullable=True),
        sa.Column("first_sent_at", sa.Double(), nullable=True),
        sa.Column("submitted_at", sa.Double(), nullable=True),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["batch_id"],
            ["batch.id"],
        ),
        sa.ForeignKeyConstraint(
            ["credential_id"],
            ["credential.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("batch_id", "row", name="uq_job_batch_row"),
        sa.UniqueConstraint("idempotency_key"),
    )
    op.create_index("ix_job_batch_state", "job", ["batch_id", "state", "row"])
    op.create_index(
        "ix_job_claim_owner",
        "job",
        ["claim_owner"],
        sqlite_where=sa.text("claim_owner IS NOT NULL"),
        postgresql_where=sa.text("claim_owner IS NOT NULL"),
    )
    op.create_index("ix_job_custom_id", "job", ["custom_id"])
    op.create_index(
        "ix_job_in_flight",
        "job",
        ["credential_id"],
        sqlite_where=sa.text("state IN ('submitting', 'queued', 'running')"),
        postgresql_where=sa.text("state IN ('submitting', 'queued', 'running')"),
    )
    op.create_index("ix_job_request_id", "job", ["request_id"])
    op.create_index(
        "ix_job_wake",
        "job",
        ["credential_id", "wake_at"],
        sqlite_where=sa.text("wake_at IS NOT NULL"),
        postgresql_where=sa.text("wake_at IS NOT NULL"),
    )

    op.create_table(
        "asset",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("pointer", sa.String(), nullable=False),
        sa.Column("url", sa.Text(), nullable=True),
        sa.Column("secondary", sa.Boolean(), nullable=False),
        sa.Column("declared_type", sa.String(), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("path", sa.String(), nullable=True),
        sa.Column("media_type", sa.String(), nullable=True),
        sa.Column("size", sa.BigInteger(), nullable=True),
        sa.Column("sha256", sa.String(length=64), nullable=True),
        sa.Column("mismatch", sa.Boolean(), nullable=False),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("saved_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["job.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("job_id", "number", name="uq_asset_job_number"),
    )
    op.create_table(
        "event",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("http_status", sa.Integer(), nullable=True),
        sa.Column("call_id", sa.String(), nullable=True),
        sa.Column("data", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["job.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_event_job_id", "event", ["job_id"])

    op.create_table(
        "payload",
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("columns", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["job.id"],
        ),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_table(
        "result",
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=True),
        sa.Column("content_type", sa.String(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("path", sa.String(), nullable=True),
        sa.Column("remark", sa.String(), nullable=True),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.Column("received_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["job.id"],
        ),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_table(
        "asset_content",
        sa.Column("asset_id", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["asset_id"],
            ["asset.id"],
        ),
        sa.PrimaryKeyConstraint("asset_id"),
    )


def downgrade() -> None:
    """Back to the revision before."""
    op.drop_table("asset_content")
    op.drop_table("result")
    op.drop_table("payload")
    op.drop_index("ix_event_job_id", table_name="event")

    op.drop_table("event")
    op.drop_table("asset")
    op.drop_index("ix_job_wake", table_name="job")
    op.drop_index("ix_job_request_id", table_name="job")
    op.drop_index("ix_job_in_flight", table_name="job")
    op.drop_index("ix_job_custom_id", table_name="job")
    op.drop_index("ix_job_claim_owner", table_name="job")
    op.drop_index("ix_job_batch_state", table_name="job")

    op.drop_table("job")
    op.drop_table("worker")
    op.drop_index("ix_batch_fingerprint", table_name="batch")
    op.drop_index("ix_batch_credential_id", table_name="batch")

    op.drop_table("batch")
    op.drop_table("model")
    op.drop_table("lease")
    op.drop_table("credential")
