"""The query parameters of a submit, kept with its body."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From the revision before to this one."""
    op.add_column("payload", sa.Column("query", sa.Text(), nullable=False, server_default=""))
