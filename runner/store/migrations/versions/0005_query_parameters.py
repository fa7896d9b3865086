"""The query parameters of a submit, kept with its body; downloads that wait are counted at every admission."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From the revision before to this one."""
    downloading = sa.text("state = 'downloading' AND wake_at IS NOT NULL")
    op.create_index(
        "ix_job_downloading", "job", ["credential_id"], sqlite_where=downloading, postgresql_where=downloading
    )
    op.add_column("payload", sa.Column("query", sa.Text(), nullable=False, server_default=""))
