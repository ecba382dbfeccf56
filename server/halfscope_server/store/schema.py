"""The tables, the same on SQLite and PostgreSQL.

Owns names, types and keys; what is in them is the business of the modules that write them. Must not import the other
store modules. Invariant: every key of measured data begins with run_id, holds the attempt and is made by us (no
autoincrement), so the tables shard by run_id as they are. Free-form values are msgpack in a binary column: JSON would
turn NaN into null.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    text,
)

REVISION = "r0007"
"""The newest migration; a database that says so needs no Alembic run (importing Alembic costs 0.3 s)."""

metadata = MetaData()


def _run_id(*, primary_key: bool = True) -> Column[str]:
    return Column("run_id", String(64), primary_key=primary_key)


def _stream_id() -> Column[str]:
    return Column("stream", String(64), primary_key=True)


ATTEMPT = BigInteger().with_variant(Integer, "sqlite")
"""A count, or microseconds since 2020; integers of SQLite hold either, and keep the name they began with."""


def _attempt() -> Column[int]:
    return Column("attempt", ATTEMPT, primary_key=True, autoincrement=False)


run = Table(
    "run",
    metadata,
    _run_id(),
    Column("project", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("state", String(16), nullable=False),
    # False while only a placeholder: records arrived, but the Start among them was lost.
    Column("started", Boolean, nullable=False),
    Column("config_attempt", ATTEMPT, nullable=False),
    Column("start_step", BigInteger, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("updated_us", BigInteger, nullable=False),
    Column("ended_us", BigInteger),
    Column("outcome", String(32), nullable=False),
    Column("error_type", Text, nullable=False),
    Column("error_message", Text, nullable=False),
    Column("last_step", BigInteger),
    Column("num_attempts", Integer, nullable=False),
    Column("world_size", Integer, nullable=False),
    Column("tags", LargeBinary, nullable=False),
    Column("config", LargeBinary, nullable=False),
    Column("environment", LargeBinary, nullable=False),
    Column("facts", LargeBinary, nullable=False),
)

deleted_run = Table(
    "deleted_run",
    metadata,
    _run_id(),
    Column("name", Text, nullable=False),
    Column("deleted_us", BigInteger, nullable=False),
)

stream = Table(
    "stream",
    metadata,
    _run_id(),
    _stream_id(),
    Column("attempt", ATTEMPT, nullable=False),
    Column("rank", Integer, nullable=False),
    Column("world_size", Integer, nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("started_us", BigInteger, nullable=False),
    Column("forked_from", Text, nullable=False),
    Column("local_rank", Integer, nullable=False, server_default=text("0")),
    # Dimension -> [position, size]; NULL: in no mesh.
    Column("mesh", LargeBinary),
    # The cursor: fencing token, first seq not taken yet, digest chain just before it.
    Column("epoch", Integer, nullable=False),
    Column("next", BigInteger, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("seen_us", BigInteger, nullable=False),
    Column("started", Boolean, nullable=False),
    Column("ended", String(32), nullable=False),
    Column("ended_us", BigInteger),
    # Everything before `compacted` lies in chunks and tiles; from there on there are `num_hot` segments, the oldest
    # taken in at `hot_since_us`.
    Column("compacted", BigInteger, nullable=False),
    Column("num_hot", Integer, nullable=False),
    Column("hot_since_us", BigInteger),
)
Index(
    "ix_stream_hot",
    stream.c.hot_since_us,
    sqlite_where=text("hot_since_us IS NOT NULL"),
    postgresql_where=text("hot_since_us IS NOT NULL"),
)
Index(
    "ix_stream_open",
    stream.c.seen_us,
    sqlite_where=text("ended = ''"),
    postgresql_where=text("ended = ''"),
)

series = Table(
    "series",
    metadata,
    _run_id(),
    Column("series_id", BigInteger, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("unit", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("reduction", Text, nullable=False),
    Column("labels", LargeBinary, nullable=False),
)

stream_series = Table(
    "stream_series",
    metadata,
    _run_id(),
    _stream_id(),
    Column("sid", BigInteger, primary_key=True, autoincrement=False),
    Column("series_id", BigInteger, nullable=False),
)

layer = Table(
    "layer",
    metadata,
    _run_id(),
    Column("layer_id", BigInteger, primary_key=True, autoincrement=False),
    Column("place", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("dtype", Text, nullable=False),
    Column("shape", LargeBinary, nullable=False),
)

stream_layer = Table(
    "stream_layer",
    metadata,
    _run_id(),
    _stream_id(),
    Column("lid", Integer, primary_key=True, autoincrement=False),
    Column("layer_id", BigInteger, nullable=False),
    # Which part of the tensor this stream has; empty: all of it.
    Column("part", Text, nullable=False, server_default=text("''")),
)

# Some elements of a bucket's gradients before and after its reduction, from each rank: what tells the error of the
# reduction. One row per `Slices` record.
bucket_slice = Table(
    "bucket_slice",
    metadata,
    _run_id(),
    _attempt(),
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    Column("bucket", Integer, primary_key=True, autoincrement=False),
    _stream_id(),
    Column("time_us", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

# How far the ranks of a run are judged; its meaning is the ranks package's.
rank_state = Table(
    "rank_state",
    metadata,
    _run_id(),
    Column("version", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("is_done", Boolean, nullable=False),
    Column("updated_us", BigInteger, nullable=False),
)

segment = Table(
    "segment",
    metadata,
    _run_id(),
    _attempt(),
    _stream_id(),
    Column("first_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("received_us", BigInteger, nullable=False),
    Column("raw_bytes", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

chunk = Table(
    "chunk",
    metadata,
    _run_id(),
    _attempt(),
    _stream_id(),
    Column("first_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("sealed", Boolean, nullable=False),
    Column("num_rows", Integer, nullable=False),
    Column("first_step", BigInteger, nullable=False),
    Column("last_step", BigInteger, nullable=False),
    Column("axis", LargeBinary, nullable=False),
)

# Small columns first: SQLite walks a row's overflow pages from the front, so a rollup is read without the body behind
# it.
series_chunk = Table(
    "series_chunk",
    metadata,
    _run_id(),
    Column("series_id", BigInteger, primary_key=True, autoincrement=False),
    _attempt(),
    _stream_id(),
    Column("first_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("first_step", BigInteger, nullable=False),
    Column("last_step", BigInteger, nullable=False),
    Column("num_points", Integer, nullable=False),
    Column("num_nan", Integer, nullable=False),
    Column("num_pos_inf", Integer, nullable=False),
    Column("num_neg_inf", Integer, nullable=False),
    Column("minimum", Double),
    Column("maximum", Double),
    Column("total", Double),
    Column("rollup_4096", LargeBinary),
    Column("rollup_64", LargeBinary),
    Column("body", LargeBinary, nullable=False),
)

# The frames that a stream's tiles of one number share: up to 64 sketched steps. The highest number is the open one.
slab = Table(
    "slab",
    metadata,
    _run_id(),
    Column("kind", String(64), primary_key=True),
    _attempt(),
    _stream_id(),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("sealed", Boolean, nullable=False),
    Column("num_frames", Integer, nullable=False),
    Column("first_step", BigInteger, nullable=False),
    Column("last_step", BigInteger, nullable=False),
    Column("scales", LargeBinary, nullable=False),
    Column("axis", LargeBinary, nullable=False),
)

# A band is 25 layers by their number within the stream. Moments before histograms, which are several times as large:
# a heatmap of all layers reads no page of them.
tile = Table(
    "tile",
    metadata,
    _run_id(),
    Column("kind", String(64), primary_key=True),
    Column("band", Integer, primary_key=True, autoincrement=False),
    _attempt(),
    _stream_id(),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("moments", LargeBinary, nullable=False),
    Column("histograms", LargeBinary, nullable=False),
)

event = Table(
    "event",
    metadata,
    _run_id(),
    _attempt(),
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    _stream_id(),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("rank", Integer, nullable=False),
    Column("kind", String(64), nullable=False),
    Column("skip_class", SmallInteger, nullable=False),
    Column("severity", String(16), nullable=False),
    Column("time_us", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
# Covers `event_marks` and `count_events`: neither reads the rows.
Index("ix_event_kind", event.c.run_id, event.c.kind, event.c.attempt, event.c.step, event.c.skip_class, event.c.rank)

token = Table(
    "token",
    metadata,
    Column("token_hash", String(64), primary_key=True),
    Column("name", Text, nullable=False),
    Column("created_us", BigInteger, nullable=False),
)

session = Table(
    "session",
    metadata,
    Column("session_hash", String(64), primary_key=True),
    Column("created_us", BigInteger, nullable=False),
    Column("expires_us", BigInteger, nullable=False),
)

# A deleted rule keeps its row without a body: its versions are not counted anew, since episodes are known by them.
rule = Table(
    "rule",
    metadata,
    Column("rule_id", String(64), primary_key=True),
    Column("version", Integer, nullable=False),
    Column("body", LargeBinary),
    Column("created_us", BigInteger, nullable=False),
    Column("updated_us", BigInteger, nullable=False),
)

# What evaluation never reads back, and lists do not filter by, is in `body`.
episode = Table(
    "episode",
    metadata,
    _run_id(),
    Column("episode_id", String(64), primary_key=True),
    Column("rule_id", String(64), nullable=False),
    Column("severity", String(16), nullable=False),
    Column("state", String(16), nullable=False),
    Column("first_us", BigInteger, nullable=False),
    Column("fired_us", BigInteger),
    Column("updated_us", BigInteger, nullable=False),
    # Not evaluation's: it writes all columns but these two.
    Column("acknowledged_us", BigInteger),
    Column("acknowledged_by", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
Index("ix_episode_id", episode.c.episode_id)
Index("ix_episode_first", episode.c.first_us, episode.c.episode_id)
Index("ix_episode_updated", episode.c.updated_us)
Index("ix_episode_rule", episode.c.rule_id, episode.c.fired_us)
Index(
    "ix_episode_open",
    episode.c.state,
    sqlite_where=text("state <> 'resolved'"),
    postgresql_where=text("state <> 'resolved'"),
)

silence = Table(
    "silence",
    metadata,
    Column("silence_id", String(64), primary_key=True),
    Column("rule_id", String(64), nullable=False),
    # No key of measured data: empty for every run.
    Column("run_id", String(64), nullable=False),
    Column("layer", Text, nullable=False),
    Column("comment", Text, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("until_us", BigInteger),
)

channel = Table(
    "channel",
    metadata,
    Column("channel_id", String(64), primary_key=True),
    Column("kind", String(64), nullable=False),
    Column("name", Text, nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("options", LargeBinary, nullable=False),
    Column("secrets", LargeBinary, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("updated_us", BigInteger, nullable=False),
)

# The outbox.
notice = Table(
    "notice",
    metadata,
    _run_id(),
    Column("episode_id", String(64), primary_key=True),
    Column("channel_id", String(64), primary_key=True),
    Column("kind", String(32), primary_key=True),
    Column("state", String(16), nullable=False),
    Column("num_tries", Integer, nullable=False),
    Column("due_us", BigInteger, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("sent_us", BigInteger),
    Column("error", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
Index("ix_notice_episode", notice.c.episode_id)
Index("ix_notice_channel", notice.c.channel_id, notice.c.state, notice.c.sent_us)
Index(
    "ix_notice_due",
    notice.c.due_us,
    sqlite_where=text("state IN ('waiting', 'sending')"),
    postgresql_where=text("state IN ('waiting', 'sending')"),
)

# How far the evaluation of a run is. `version` is moved by compare-and-set, like a stream's cursor.
alert_state = Table(
    "alert_state",
    metadata,
    _run_id(),
    Column("version", Integer, nullable=False),
    # Whether it has seen the run's end.
    Column("is_done", Boolean, nullable=False),
    Column("updated_us", BigInteger, nullable=False),
    Column("state", LargeBinary, nullable=False),
)

# What one server at a time does for all.
lease = Table(
    "lease",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("owner", String(64), nullable=False),
    Column("until_us", BigInteger, nullable=False),
)

# Saved by people; runs stay in it when they are deleted.
comparison = Table(
    "comparison",
    metadata,
    Column("comparison_id", String(64), primary_key=True),
    Column("name", Text, nullable=False),
    Column("runs", LargeBinary, nullable=False),
    Column("options", LargeBinary, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("updated_us", BigInteger, nullable=False),
)
