"""Many ranks: places in the device mesh, parts of layers, slices of buckets."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0005"
down_revision = "r0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("stream", sa.Column("local_rank", sa.Integer(), nullable=False, server_default=sa.text("0")))
    op.add_column("stream", sa.Column("mesh", sa.LargeBinary(), nullable=True))
    op.add_column("stream_layer", sa.Column("part", sa.Text(), nullable=False, server_default=sa.text("''")))
    op.create_table(
        "bucket_slice",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("bucket", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("stream", sa.String(length=64), nullable=False),
        sa.Column("time_us", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "attempt", "step", "bucket", "stream"),
    )


def downgrade() -> None:
    op.drop_table("bucket_slice")
    op.drop_column("stream_layer", "part")
    op.drop_column("stream", "mesh")
    op.drop_column("stream", "local_rank")
