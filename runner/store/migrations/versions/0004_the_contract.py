"""What the contract says beside a request: query parameters, quotes, credits used, and a batch's limit on cost.

Downloads that wait are counted at every admission, by an index of their own.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From the revision before to this one."""
    downloading = sa.text("state = 'downloading' AND wake_at IS NOT NULL")
    op.create_index(
        "ix_job_downloading", "job", ["credential_id"], sqlite_where=downloading, postgresql_where=downloading
    )
    for name in ("quote_low", "quote_high", "credits_used"):
        op.add_column("job", sa.Column(name, sa.Double(), nullable=True))
    op.add_column("batch", sa.Column("max_cost", sa.Double(), nullable=True))
    op.add_column("batch", sa.Column("dearest", sa.Double(), nullable=True))
    op.add_column("batch", sa.Column("quoted", sa.Double(), nullable=False, server_default="0"))
    op.add_column("payload", sa.Column("query", sa.Text(), nullable=False, server_default=""))
