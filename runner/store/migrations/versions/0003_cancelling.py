"""Cancelling: when the Router was asked, and how long a batch's requests may take."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From the revision before to this one."""
    op.add_column("job", sa.Column("cancel_asked_at", sa.Double(), nullable=True))
    op.add_column("batch", sa.Column("cancel_after", sa.Double(), nullable=True))
