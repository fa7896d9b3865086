"""Time and pace: when a delay was written, what ends when, calls a second, failures alike."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_RELEASED = "state = 'pending' AND decided_at IS NOT NULL"


def upgrade() -> None:
    """From the revision before to this one."""
    op.add_column("job", sa.Column("decided_at", sa.Double(), nullable=True))
    op.add_column("job", sa.Column("deadline", sa.Double(), nullable=True))
    op.add_column("job", sa.Column("paced_at", sa.Double(), nullable=True))
    op.add_column("credential", sa.Column("cooled_at", sa.Double(), nullable=True))
    op.add_column("credential", sa.Column("paced_until", sa.Double(), nullable=True))
    op.add_column("batch", sa.Column("alike", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("batch", sa.Column("alike_as", sa.String(), nullable=True))
    op.create_index(
        "ix_job_released",
        "job",
        ["credential_id", "decided_at"],
        sqlite_where=sa.text(_RELEASED),
        postgresql_where=sa.text(_RELEASED),
    )
    # Requests that an earlier version sent: their results end a day after their acceptance at the soonest.
    op.execute("UPDATE job SET deadline = submitted_at + 86400 WHERE step IS NOT NULL AND submitted_at IS NOT NULL")
