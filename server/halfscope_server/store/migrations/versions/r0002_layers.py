"""Layers and their sketches: declarations, slabs of frames, tiles."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0002"
down_revision = "r0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "layer",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("layer_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("dtype", sa.Text(), nullable=False),
        sa.Column("shape", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "layer_id"),
    )
    op.create_table(
        "stream_layer",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("stream", sa.String(length=64), nullable=False),
        sa.Column("lid", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("layer_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "stream", "lid"),
    )
    op.create_table(
        "slab",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("stream", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("sealed", sa.Boolean(), nullable=False),
        sa.Column("num_frames", sa.Integer(), nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("scales", sa.LargeBinary(), nullable=False),
        sa.Column("axis", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "kind", "attempt", "stream", "number"),
    )
    op.create_table(
        "tile",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("band", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("stream", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("moments", sa.LargeBinary(), nullable=False),
        sa.Column("histograms", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "kind", "band", "attempt", "stream", "number"),
    )


def downgrade() -> None:
    for table in ("tile", "slab", "stream_layer", "layer"):
        op.drop_table(table)
