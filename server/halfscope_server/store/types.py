"""Rows and arrays that cross the store's wall.

Everything above the store speaks in these; none of it knows of tables. Must not import sqlalchemy.
Invariant: arrays of one `Points` or `Rollup` have equal length and ascend by (step, arrival).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from halfscope.sketch import Sketch
from halfscope.wire.messages import Gone, Refuse
from numpy.typing import NDArray

if TYPE_CHECKING:
    from halfscope_server.store.updates import Brought

SERVER_STREAM = "~server"
"""Stream of what the server itself writes into a run. It has a cursor, so readers notice; `~` keeps it apart from
agents' streams."""

RunState = Literal["waiting", "live", "finished", "failed", "killed", "lost", "superseded"]
"""`waiting`: no step yet. `failed`: ended by an exception. `killed`: its process vanished. `lost`: contact lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One run: identity, what the user gave, and the little that lists need without touching points."""

    run_id: str
    project: str
    name: str
    state: RunState
    tags: Sequence[str]
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    facts: Mapping[str, Any]
    """Merged `Facts` records: `precision`, `memory`, `scalers`, `optimizers`, `parameters` ..."""
    created_us: int
    updated_us: int
    """Server time of the newest committed frame."""
    ended_us: int | None
    outcome: str
    """What the End record or the sender said: `finished`, `exception`, `killed`, `lost_contact`, `superseded`, or
    empty."""
    error_type: str
    error_message: str
    last_step: int | None
    num_attempts: int
    world_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRow:
    """One writer of a run, with its cursor."""

    run_id: str
    stream: str
    rank: int
    attempt: int
    world_size: int
    host: str
    pid: int
    started_us: int
    forked_from: str
    epoch: int
    next: int
    digest: bytes
    seen_us: int
    ended: str
    local_rank: int = 0
    mesh: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Dimension to (position, size)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesRow:
    """One series of a run: a name with its labels."""

    run_id: str
    series_id: int
    """Same for the same (name, labels) in every run and on every replica: 63 bits of a hash."""
    name: str
    labels: Mapping[str, str]
    unit: str
    kind: str
    reduction: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Raw values of one series, ascending by step."""

    step: NDArray[np.int64]
    time_us: NDArray[np.int64]
    value: NDArray[np.float64]
    """Non-finite values as they came, bit for bit."""
    rank: NDArray[np.int32]
    attempt: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Where a series has points, and how large they get."""

    first_step: int
    last_step: int
    num_points: int
    """Non-finite ones included."""
    maximum: float | None
    """Of the finite values; None: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollup:
    """Summaries over buckets of `width` steps, aligned to step 0: bucket k covers [k * width, (k + 1) * width)."""

    width: int
    step: NDArray[np.int64]
    """First step of the bucket."""
    time_us: NDArray[np.int64]
    """Time of the bucket's first point."""
    count: NDArray[np.int64]
    """All points, non-finite ones included."""
    minimum: NDArray[np.float64]
    """Over finite values; NaN where there is none. Likewise maximum, total, first, last."""
    maximum: NDArray[np.float64]
    total: NDArray[np.float64]
    first: NDArray[np.float64]
    last: NDArray[np.float64]
    num_nan: NDArray[np.int64]
    num_pos_inf: NDArray[np.int64]
    num_neg_inf: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRow:
    """One layer of a run: a parameter tensor whose gradient is sketched."""

    run_id: str
    layer_id: int
    """Same for the same name in every run and on every replica: 63 bits of a hash."""
    name: str
    shape: Sequence[int]
    dtype: str
    place: int
    """Smallest number any stream gave it: the order of registration."""


Counts = NDArray[np.int32] | NDArray[np.int64]
"""In 32 bits where all of them fit."""

GRADIENT_POINTS: tuple[str, ...] = ("", "unscale", "scaled_step", "clip", "step", "closure")
"""What `point` of frames counts; "" for a point this server does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frames:
    """The sketched steps of a run, ascending by (attempt, step, rank); F of them, and L layers in the order asked
    for."""

    layer_ids: tuple[int, ...]
    step: NDArray[np.int64]
    """[F]; likewise time_us, rank, attempt."""
    time_us: NDArray[np.int64]
    rank: NDArray[np.int32]
    attempt: NDArray[np.int64]
    scale: NDArray[np.float64]
    """Loss scale that was on the gradients in that step; NaN where there was no scaler. [F, 1] where it is the same for
    all layers of each frame, else [F, L]: several scalers, or an optimizer without one. Where a layer was not sketched,
    that of what came first in the step."""
    present: NDArray[np.bool_]
    """[F, L] whether the layer was sketched in that step; elsewhere all counts are 0."""
    point: NDArray[np.uint8]
    """[F, L] index into `GRADIENT_POINTS`."""
    maybe_clipped: NDArray[np.bool_]
    """[F, L]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameMoments(Frames):
    """What pages of many layers need, without the histograms. All [F, L]; all but the extremes add up."""

    columns: Mapping[str, NDArray[Any]]
    """By their names below: those that were asked for."""

    @property
    def n(self) -> Counts:
        return self.columns["n"]

    @property
    def zeros(self) -> Counts:
        return self.columns["zeros"]

    @property
    def nan(self) -> Counts:
        return self.columns["nan"]

    @property
    def pos_inf(self) -> Counts:
        return self.columns["pos_inf"]

    @property
    def neg_inf(self) -> Counts:
        return self.columns["neg_inf"]

    @property
    def sum(self) -> NDArray[np.float64]:
        return self.columns["sum"]

    @property
    def sumsq(self) -> NDArray[np.float64]:
        return self.columns["sumsq"]

    @property
    def absmax(self) -> NDArray[np.float64]:
        return self.columns["absmax"]

    @property
    def absmin_nonzero(self) -> NDArray[np.float64]:
        return self.columns["absmin_nonzero"]

    @property
    def flushed(self) -> Counts:
        """Elements that FP16 would round to zero at the layer's scale, or at `halfscope.sketch.DEFAULT_SCALE` without
        one. For a scale that is no power of two the counts are rounded to whole elements."""
        return self.columns["flushed"]

    @property
    def subnormal(self) -> Counts:
        """In FP16's subnormal range there: what `near_floor_share` counts."""
        return self.columns["subnormal"]

    @property
    def overflow(self) -> Counts:
        return self.columns["overflow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSketches(Frames):
    """The sketches themselves."""

    sketches: Sketch
    """A stack of shape [F, L]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """One event, in the order (attempt, step, stream, seq, index)."""

    run_id: str
    stream: str
    seq: int
    """Seq of the record it came in; with stream it is unique."""
    rank: int
    attempt: int
    kind: str
    step: int
    time_us: int
    severity: str
    where: Sequence[str]
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What one group commit brought, handed to the live hub and the alert evaluator after COMMIT."""

    run_id: str
    stream: str
    next: int
    first_step: int | None
    last_step: int | None
    num_points: int
    num_events: int
    num_sketches: int = 0
    """Layers' sketches, over all frames."""
    series_ids: frozenset[int] = field(default_factory=frozenset)
    brought: Brought | None = None
    """The records themselves; None: they are to be read."""


def noted(run_id: str) -> Applied:
    """What the server itself wrote into a run."""
    return Applied(
        run_id=run_id, stream=SERVER_STREAM, next=0, first_step=None, last_step=None, num_points=0, num_events=1
    )


SKIP_CLASSES: tuple[str, ...] = ("", "settling", "probe", "single", "streak")
"""What `EventMarks.skip_class` counts; "" for events that are no skip, and for a class this server does not know."""
CAUGHT = len(SKIP_CLASSES)
"""What it is for a `loss_nonfinite` that its agent calls caught: nothing of it reached a weight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventMarks:
    """Where events of some kinds lie, without their text: arrays of equal length, ascending by (attempt, step)."""

    kinds: tuple[str, ...]
    step: NDArray[np.int64]
    kind: NDArray[np.int16]
    """Index into `kinds`."""
    skip_class: NDArray[np.int8]
    """Index into `SKIP_CLASSES`, as the event said; a streak's first two skips still say otherwise."""
    attempt: NDArray[np.int64]
    rank: NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    """What became of one group of batches."""

    next: Mapping[tuple[str, str], int]
    """The cursor of every stream that still exists, re-read after COMMIT: what is acknowledged."""
    epochs: Mapping[tuple[str, str], int]
    """The fencing token of each, read at the same time."""
    applied: Sequence[Applied] = ()
    refused: Sequence[Refuse] = ()
    gone: Sequence[Gone] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """A bearer token that was given out; of the token itself only a hash is kept."""

    token_hash: str
    name: str
    created_us: int


AlertState = Literal["pending", "firing", "resolved", "no_data", "error"]
"""`no_data`: there is nothing to judge by, and the rule wants to be told. `error`: the rule could not be evaluated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRow:
    """A rule as it is kept: its meaning is the alerts package's."""

    rule_id: str
    version: int
    """Counts changes, from 1."""
    judged_version: int
    """The newest version in which something changed that is judged by; episodes say which one made them."""
    body: Mapping[str, Any]
    created_us: int
    updated_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRow:
    """One thing that a rule found wrong, from its first step to its last.

    Its id is a hash of (rule, version, run, group, attempt, first step): evaluating again finds the same one.
    """

    episode_id: str
    rule_id: str
    rule_version: int
    run_id: str
    rule_name: str
    """As it was then: the rule may be renamed or deleted."""
    metric: str
    severity: str
    layer: str
    rank: int | None
    labels: Mapping[str, str]
    attempt: int
    state: AlertState
    first_step: int
    """Where it began to be so (pending); fired_step is where it had been so for long enough."""
    first_us: int
    fired_step: int | None
    fired_us: int | None
    last_step: int
    """Newest step judged to belong to it."""
    last_us: int
    resolved_step: int | None
    resolved_us: int | None
    resolution: str
    """Why it is over: `cleared`, `run ended`, `rank ended`, `restarted`, `rule changed`, `rule switched off`,
    `rule deleted`; empty while it is not."""
    value: float
    """What was compared when it fired (while pending: now)."""
    worst: float
    """Farthest beyond the threshold so far."""
    threshold: float
    text: str
    """The sentence: "block.3.mlp.fc2: NaN/Inf rate 4.1% > 1% for 200 steps"."""
    evidence: Mapping[str, Any]
    """{"step": [...], "value": [...]} around the firing, at most 64 of each; {"note": ...} where there is more to
    say."""
    updated_us: int
    """Server time of the newest change."""
    acknowledged_us: int | None = None
    acknowledged_by: str = ""
    """Name of the token or session, where it has one."""
    muted_by: str = ""
    """Why nothing was sent: `silence:ID`, `inhibited:RULE`, `run muted`; empty: it was, or there is no channel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SilenceRow:
    """Nothing is sent for episodes that match, until it ends."""

    silence_id: str
    rule_id: str
    """Empty: every rule. Likewise run_id and layer."""
    run_id: str
    layer: str
    comment: str
    created_us: int
    until_us: int | None
    """None: until it is lifted (a muted run)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelRow:
    """Where notifications go. Never leaves the server as it is: `secrets` holds addresses with passwords and tokens."""

    channel_id: str
    kind: str
    name: str
    enabled: bool
    options: Mapping[str, Any]
    """What may be shown."""
    secrets: Mapping[str, Any]
    """What may not."""
    created_us: int
    updated_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeRow:
    """One notification to one channel. (episode_id, channel_id, kind) is unique: it is sent once."""

    episode_id: str
    channel_id: str
    kind: str
    """`fired`, `resolved`, `repeat:1`, `repeat:2` ..."""
    state: Literal["waiting", "sending", "sent", "failed"]
    """`failed`: given up."""
    num_tries: int
    due_us: int
    """When it is tried (again); while `sending`: when the sender counts as dead."""
    created_us: int
    sent_us: int | None
    error: str
    """Of the last try, without secrets."""
    body: Mapping[str, Any]
    """What is sent, as it was when it happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """A comparison that somebody saved."""

    comparison_id: str
    name: str
    runs: tuple[str, ...]
    """Ids, the baseline's first; some may have been deleted since."""
    options: Mapping[str, Any]
    """Plain values, as they were given."""
    created_us: int
    updated_us: int
