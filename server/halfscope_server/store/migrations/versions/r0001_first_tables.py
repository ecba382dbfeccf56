"""The first tables: runs, streams with their cursors, segments, chunks, events, credentials."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "chunk",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("stream", sa.String(length=64), nullable=False),
        sa.Column("first_seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("sealed", sa.Boolean(), nullable=False),
        sa.Column("num_rows", sa.Integer(), nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("axis", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "attempt", "stream", "first_seq"),
    )
    op.create_table(
        "deleted_run",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("deleted_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run_id"),
    )
    op.create_table(
        "event",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("stream", sa.String(length=64), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("skip_class", sa.SmallInteger(), nullable=False),
        sa.Column("severity", sa.String(length=16), nullable=False),
        sa.Column("time_us", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "attempt", "step", "stream", "seq"),
    )
    op.create_index("ix_event_kind", "event", ["run_id", "kind", "attempt", "step", "skip_class", "rank"], unique=False)
    op.create_table(
        "run",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("started", sa.Boolean(), nullable=False),
        sa.Column("config_attempt", sa.Integer(), nullable=False),
        sa.Column("start_step", sa.BigInteger(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("updated_us", sa.BigInteger(), nullable=False),
        sa.Column("ended_us", sa.BigInteger(), nullable=True),
        sa.Column("outcome", sa.String(length=32), nullable=False),
        sa.Column("error_type", sa.Text(), nullable=False),
        sa.Column("error_message", sa.Text(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=True),
        sa.Column("num_attempts", sa.Integer(), nullable=False),
        sa.Column("world_size", sa.Integer(), nullable=False),
        sa.Column("tags", sa.LargeBinary(), nullable=False),
        sa.Column("config", sa.LargeBinary(), nullable=False),
        sa.Column("environment", sa.LargeBinary(), nullable=False),
        sa.Column("facts", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id"),
    )
    op.create_table(
        "segment",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("stream", sa.String(length=64), nullable=False),
        sa.Column("first_seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("received_us", sa.BigInteger(), nullable=False),
        sa.Column("raw_bytes", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "attempt", "stream", "first_seq"),
    )
    op.create_table(
        "series",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("series_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("reduction", sa.Text(), nullable=False),
        sa.Column("labels", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "series_id"),
    )
    op.create_table(
        "series_chunk",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("series_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("stream", sa.String(length=64), nullable=False),
        sa.Column("first_seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("num_points", sa.Integer(), nullable=False),
        sa.Column("num_nan", sa.Integer(), nullable=False),
        sa.Column("num_pos_inf", sa.Integer(), nullable=False),
        sa.Column("num_neg_inf", sa.Integer(), nullable=False),
        sa.Column("minimum", sa.Double(), nullable=True),
        sa.Column("maximum", sa.Double(), nullable=True),
        sa.Column("total", sa.Double(), nullable=True),
        sa.Column("rollup_4096", sa.LargeBinary(), nullable=True),
        sa.Column("rollup_64", sa.LargeBinary(), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "series_id", "attempt", "stream", "first_seq"),
    )
    op.create_table(
        "session",
        sa.Column("session_hash", sa.String(length=64), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("expires_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("session_hash"),
    )
    op.create_table(
        "stream",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("stream", sa.String(length=64), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("world_size", sa.Integer(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("started_us", sa.BigInteger(), nullable=False),
        sa.Column("forked_from", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("next", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("seen_us", sa.BigInteger(), nullable=False),
        sa.Column("started", sa.Boolean(), nullable=False),
        sa.Column("ended", sa.String(length=32), nullable=False),
        sa.Column("ended_us", sa.BigInteger(), nullable=True),
        sa.Column("compacted", sa.BigInteger(), nullable=False),
        sa.Column("num_hot", sa.Integer(), nullable=False),
        sa.Column("hot_since_us", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "stream"),
    )
    op.create_index(
        "ix_stream_hot",
        "stream",
        ["hot_since_us"],
        unique=False,
        sqlite_where=sa.text("hot_since_us IS NOT NULL"),
        postgresql_where=sa.text("hot_since_us IS NOT NULL"),
    )
    op.create_index(
        "ix_stream_open",
        "stream",
        ["seen_us"],
        unique=False,
        sqlite_where=sa.text("ended = ''"),
        postgresql_where=sa.text("ended = ''"),
    )
    op.create_table(
        "stream_series",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("stream", sa.String(length=64), nullable=False),
        sa.Column("sid", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("series_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "stream", "sid"),
    )
    op.create_table(
        "token",
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("token_hash"),
    )


def downgrade() -> None:
    for table in (
        "token",
        "stream_series",
        "stream",
        "session",
        "series_chunk",
        "series",
        "segment",
        "run",
        "event",
        "deleted_run",
        "chunk",
    ):
        op.drop_table(table)
