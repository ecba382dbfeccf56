"""What is said of the ranks of a run; handed out by the API as it is.

Must not import the other modules here. Invariant: plain values only; a number that is not known is None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RankState = Literal["training", "waiting", "stuck", "lost_contact", "killed", "exception", "finished"]
"""`waiting`: its last step is complete and another rank holds the job up; `stuck`: the others wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRow:
    """One rank in the newest attempt."""

    rank: int
    local_rank: int
    host: str
    pid: int
    mesh: dict[str, tuple[int, int]]
    """Dimension to (position, size)."""
    attempt: int
    state: RankState
    last_step: int | None
    num_behind: int
    """Steps behind the rank that is furthest."""
    step_s: float | None
    """Median of the last 200 steps, like the two below."""
    busy_s: float | None
    wait_share: float | None
    """Share of step time that it waited for others and the wire."""
    num_nonfinite: int
    """Steps in which its own gradient, before any reduction, held NaN or Inf."""
    first_nonfinite_step: int | None
    num_skipped: int | None
    memory_bytes: float | None
    """Device memory where there is a device, else of the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """A fact in which ranks part from the others."""

    fact: str
    """What differs: `loss scale`, `skipped`, `learning rate`, `applied steps`, `weights`, `step count`, ..."""
    attempt: int
    first_step: int
    last_step: int | None
    """None: still."""
    ranks: tuple[int, ...]
    """Which part from the majority (of a tie: from rank 0)."""
    values: tuple[float | None, ...]
    """Theirs at the first step, in the order of `ranks`."""
    expected: float | None
    """The others'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """One fact over the whole run."""

    fact: str
    outcome: Literal["agree", "parted", "unknown"]
    num_steps: int
    """Steps that all ranks have passed and that were compared."""
    first: Parting | None
    last: Parting | None
    stretches: tuple[tuple[int, int], ...]
    """First and last step of each parting, ascending: at most 64, those nearest to each other taken together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a step that was not finite began."""

    attempt: int
    step: int
    kind: Literal["backward", "compression", "reduction"]
    """In a rank's own gradient; in what a communication hook made of it; in the sum alone."""
    ranks: tuple[int, ...]
    """Empty for `reduction`."""
    layers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """A rank that holds the others up."""

    rank: int
    since_step: int
    extra_s: float
    """Its busy time over the median rank's, per step."""
    cost_share: float
    """Of the job's step time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """One bucket of the reduction, over all ranks and the last 200 steps."""

    bucket: int
    layers: tuple[str, ...]
    dtype: str
    num_bytes: int
    time_s: float | None
    """Median, from ready to reduced, of the slowest rank."""
    bandwidth_bytes_per_s: float | None
    """Bytes over time: what the job got, not what the wire could."""
    error: float | None
    """Newest: |reduced - right| / |right| over the sampled elements; right is the float64 mean of the ranks' own."""
    worst_layer: str
    worst_error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksReport:
    """Everything that the Ranks page says in words and tables."""

    world_size: int
    num_seen: int
    attempt: int
    sentence: str
    """The one thing to know, or that all is well."""
    role: Literal["healthy", "unhealthy", "failed", "unknown"]
    ranks: tuple[RankRow, ...]
    agreement: tuple[Agreement, ...]
    origins: tuple[Origin, ...]
    """Newest first, at most 100."""
    num_origins: int
    straggler: Straggler | None
    buckets: tuple[Bucket, ...]
    comm_hook: str
    """Name of the communication hook; empty where there is none to see."""
