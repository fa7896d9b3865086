"""A batch of a million rows is counted from indexes alone; a media file knows its batch for that."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From the revision before to this one."""
    op.add_column("asset", sa.Column("batch_id", sa.String(32), nullable=False, server_default=""))
    op.execute("UPDATE asset SET batch_id = (SELECT batch_id FROM job WHERE job.id = asset.job_id)")
    op.create_index("ix_asset_numbers", "asset", ["batch_id", "state"])
    numbers = ["batch_id", "state", "charge", "credits_used", "quote_low", "quote_high"]
    op.create_index("ix_job_numbers", "job", numbers)
