"""Alerts: rules, episodes, silences, channels, the outbox, and how far evaluation is."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0003"
down_revision = "r0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rule",
        sa.Column("rule_id", sa.String(length=64), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("updated_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("rule_id"),
    )
    op.create_table(
        "episode",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("episode_id", sa.String(length=64), nullable=False),
        sa.Column("rule_id", sa.String(length=64), nullable=False),
        sa.Column("severity", sa.String(length=16), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("first_us", sa.BigInteger(), nullable=False),
        sa.Column("fired_us", sa.BigInteger(), nullable=True),
        sa.Column("updated_us", sa.BigInteger(), nullable=False),
        sa.Column("acknowledged_us", sa.BigInteger(), nullable=True),
        sa.Column("acknowledged_by", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "episode_id"),
    )
    op.create_index("ix_episode_id", "episode", ["episode_id"], unique=False)
    op.create_index("ix_episode_first", "episode", ["first_us", "episode_id"], unique=False)
    op.create_index("ix_episode_updated", "episode", ["updated_us"], unique=False)
    op.create_index("ix_episode_rule", "episode", ["rule_id", "fired_us"], unique=False)
    op.create_index(
        "ix_episode_open",
        "episode",
        ["state"],
        unique=False,
        sqlite_where=sa.text("state <> 'resolved'"),
        postgresql_where=sa.text("state <> 'resolved'"),
    )
    op.create_table(
        "silence",
        sa.Column("silence_id", sa.String(length=64), nullable=False),
        sa.Column("rule_id", sa.String(length=64), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("layer", sa.Text(), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("until_us", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("silence_id"),
    )
    op.create_table(
        "channel",
        sa.Column("channel_id", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("options", sa.LargeBinary(), nullable=False),
        sa.Column("secrets", sa.LargeBinary(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("updated_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("channel_id"),
    )
    _upgrade_service_tables()


def _upgrade_service_tables() -> None:
    op.create_table(
        "notice",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("episode_id", sa.String(length=64), nullable=False),
        sa.Column("channel_id", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("num_tries", sa.Integer(), nullable=False),
        sa.Column("due_us", sa.BigInteger(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("sent_us", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "episode_id", "channel_id", "kind"),
    )
    op.create_index("ix_notice_episode", "notice", ["episode_id"], unique=False)
    op.create_index("ix_notice_channel", "notice", ["channel_id", "state", "sent_us"], unique=False)
    op.create_index(
        "ix_notice_due",
        "notice",
        ["due_us"],
        unique=False,
        sqlite_where=sa.text("state IN ('waiting', 'sending')"),
        postgresql_where=sa.text("state IN ('waiting', 'sending')"),
    )
    op.create_table(
        "alert_state",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("is_done", sa.Boolean(), nullable=False),
        sa.Column("updated_us", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id"),
    )
    op.create_table(
        "lease",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("until_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )


def downgrade() -> None:
    for table in ("lease", "alert_state", "notice", "channel", "silence", "episode", "rule"):
        op.drop_table(table)
