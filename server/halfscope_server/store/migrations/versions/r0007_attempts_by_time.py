"""Attempts by the microsecond of their start are larger than 32 bits."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0007"
down_revision = "r0006"
branch_labels = None
depends_on = None

TABLES = ("stream", "bucket_slice", "segment", "chunk", "series_chunk", "slab", "tile", "event")


def upgrade() -> None:
    _retype(sa.BigInteger())


def downgrade() -> None:
    _retype(sa.Integer())


def _retype(to: sa.types.TypeEngine[int]) -> None:
    if op.get_bind().dialect.name == "sqlite":  # its integers have no width
        return
    op.alter_column("run", "config_attempt", type_=to)
    for name in TABLES:
        op.alter_column(name, "attempt", type_=to)
