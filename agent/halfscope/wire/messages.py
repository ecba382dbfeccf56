"""The messages of `halfscope.v1`: what a journal holds and what agent and server say to each other.

Two families share this file because a batch on the wire is a run of journal records, forwarded unread:

- *records* (`Start`, `Declare`, `Layers`, `Points`, `Sketches`, `Slices`, `Event`, `Facts`, `Lost`, `End`) are written
  by the agent into its journal, one msgpack value each, and decoded by the server;
- *frames* (`Hello`, `Batch`, `Live`, `Bye` from the agent; `Welcome`, `Ack`, `Gone`, `Refuse`, `Command` from the
  server) travel over a websocket or inside `POST /api/v1/ingest`.

Must not import torch or numpy. Invariant: a field is only ever appended, with a default, so that any released version
can decode what any other wrote. Columns are little-endian bytes, so NaN payloads, infinities and subnormals arrive
bit for bit.
"""

from __future__ import annotations

from typing import Any

import msgspec

PROTOCOL = "halfscope.v1"
"""Websocket subprotocol name, and the first thing a session agrees on."""

GENESIS_DIGEST = bytes(16)
"""The digest chain before the first record of a stream."""

FIRST_TIMED_ATTEMPT = 1 << 24
"""Attempts below are counted; from here on they are the time of their start, in microseconds since 2020."""


class Series(msgspec.Struct, frozen=True, array_like=True):
    """Declares one series of a stream; self-describing, so a new metric needs no server change."""

    sid: int
    """Number of the series within its stream, from 0."""
    name: str
    """Dotted name, for example `grad.norm`."""
    unit: str = ""
    """Unit of the values: `1`, `s`, `bytes`, `samples/s`, `share` (0..1) or empty when the user gave none."""
    kind: str = "gauge"
    """How to draw and aggregate: `gauge` (a value per step), `state` (holds until it changes), `flag` (0 or 1),
    `counter` (grows)."""
    reduction: str = "last"
    """How values of one step combine over ranks: `last`, `mean`, `sum`, `min`, `max`, `norm` (root of the sum of
    squares)."""
    labels: dict[str, str] = {}
    """What tells apart series of one name: `optimizer`, `layer`, `group`, `source`."""


class Column(msgspec.Struct, frozen=True, array_like=True):
    """Values of one series within a `Points` record."""

    sid: int
    values: bytes
    """float64 little-endian, one per row."""
    rows: bytes = b""
    """Row numbers into the record's steps, uint32 little-endian; empty means every row in order."""


class Layer(msgspec.Struct, frozen=True, array_like=True):
    """Declares one layer of a stream: a parameter tensor whose gradient is sketched."""

    lid: int
    """Number of the layer within its stream, from 0, in the order of registration."""
    name: str
    """Canonical parameter name, without `module.` and `_orig_mod.`: `block.3.mlp.fc2.weight`."""
    shape: list[int] = []
    dtype: str = ""
    """Of the parameter: `float32`."""
    part: str = ""
    """Which part of the tensor this stream's sketches are of. Empty: all of it. Else its place in the mesh dimensions
    that cut it, `tensor:0/2 data:3/4`. `shape` is the whole tensor's. Over ranks sketches of different parts add up;
    of one part, one rank's count."""


class Start(msgspec.Struct, frozen=True, array_like=True, tag="start"):
    """First record of a stream: what the run is. Repeated at the head of every segment, with equal content."""

    time_us: int
    """Wall clock, microseconds since the epoch (UTC)."""
    project: str
    name: str
    config: dict[str, Any] = {}
    """The user's own configuration, any msgpack value."""
    tags: list[str] = []
    environment: dict[str, Any] = {}
    """Versions, device, variables, command line with secrets masked, git commit."""
    start_step: int = 0
    agent_version: str = ""


class Declare(msgspec.Struct, frozen=True, array_like=True, tag="declare"):
    """Series declarations; a snapshot of all of them stands at the head of each journal segment."""

    series: list[Series]


class Points(msgspec.Struct, frozen=True, array_like=True, tag="points"):
    """Numbers of some steps. A step may come again in a later record with further series: values read late from a
    device."""

    steps: bytes
    """int64 little-endian, one per row; ascending within the record."""
    times_us: bytes
    """int64 little-endian, one per row: wall clock at which that step was complete."""
    columns: list[Column]


class Layers(msgspec.Struct, frozen=True, array_like=True, tag="layers"):
    """Layer declarations; a snapshot of all of them stands at the head of each journal segment."""

    layers: list[Layer]


class Sketches(msgspec.Struct, frozen=True, array_like=True, tag="sketches"):
    """Exponent sketches (`halfscope.sketch`) of several layers' tensors at one step. What one step measured may come
    in several of these, with different layers; their sum is the step's frame."""

    step: int
    time_us: int
    """Wall clock at which the step was complete."""
    point: str
    """Where the gradient was read: `unscale`, `scaled_step`, `clip`, `step`, `closure` (docs/numerics.md)."""
    clipped: str
    """`no`, or `maybe` where clipping cannot be ruled out."""
    scale: float
    """Loss scale that this step's backward used; NaN where there is no scaler. The sketches are of the *unscaled*
    gradient."""
    lids: bytes
    """uint32 little-endian, one per layer. All columns below are in this order, little-endian."""
    counts: bytes
    """int64, five per layer: n, zeros, nan, pos_inf, neg_inf. n is all elements, those four included."""
    moments: bytes
    """float64, four per layer, over finite elements: sum, sum of squares, largest magnitude, smallest nonzero
    magnitude (0 and infinity where there is none)."""
    lowest: bytes
    """int16 per layer: exponent of its first bin."""
    num_bins: bytes
    """uint16 per layer."""
    bins: bytes
    """Unsigned counts, `width` bytes each, layer after layer: how many elements have floor(log2|x|) equal to lowest,
    lowest + 1, ..."""
    width: int = 8
    """1, 2, 4 or 8: the smallest that holds the record's largest count."""
    of: str = "grad"
    """What kind of tensor: `grad`, a parameter's gradient; `update`, the change that the step made to a parameter, of
    sampled elements whose gradient was finite and not zero (docs/numerics.md)."""


class Slices(msgspec.Struct, frozen=True, array_like=True, tag="slices"):
    """A few elements of a bucket's gradients, on the same places on every rank: before its reduction and after it. The
    server has those of all ranks, so it knows what the reduction should have given (docs/ranks.md)."""

    step: int
    time_us: int
    bucket: int
    """Number of the bucket, from 0, in the order in which the reducer hands them out."""
    lids: bytes
    """uint32 little-endian, one per layer in the bucket."""
    counts: bytes
    """uint32 per layer: how many elements of it follow."""
    local: bytes
    """float32, layer after layer: this rank's own gradient, scaled as the backward left it."""
    reduced: bytes
    """float32, the same elements after the reduction."""
    divisor: float = 1.0
    """What the reduction divides the sum by."""
    ranks: list[int] = []
    """Global ranks that took part; empty: all of the run."""


class Event(msgspec.Struct, frozen=True, array_like=True, tag="event"):
    """Something that happened at a step."""

    kind: str
    """`skip`, `scale_backoff`, `scale_growth`, `loss_nonfinite`, `bad_streak`, `update_missing`, ...
    (docs/events.md)."""
    step: int
    time_us: int
    severity: str = "info"
    """`info`, `warning` or `critical`."""
    where: list[str] = []
    """Names of layers, optimizers or scalers it concerns."""
    attributes: dict[str, Any] = {}


class Facts(msgspec.Struct, frozen=True, array_like=True, tag="facts"):
    """What became known about the run after its start; merged key by key, newest wins. `precision`, `memory`,
    `scalers`, ..."""

    time_us: int
    facts: dict[str, Any]


class Lost(msgspec.Struct, frozen=True, array_like=True, tag="lost"):
    """Records that can no longer be delivered: dropped by the quota, damaged, or asked for after the journal let them
    go."""

    first_seq: int
    last_seq: int
    """Inclusive."""
    reason: str
    time_us: int = 0
    counts: dict[str, int] = {}
    """How many of what were in it, where that is known: `points`, `events`, `bytes`."""


class End(msgspec.Struct, frozen=True, array_like=True, tag="end"):
    """Last record of a stream that ended while its process lived."""

    outcome: str
    """`finished`, `exception`, `superseded`."""
    step: int
    time_us: int
    error_type: str = ""
    message: str = ""


Record = Start | Declare | Layers | Points | Sketches | Slices | Event | Facts | Lost | End


class StreamInfo(msgspec.Struct, frozen=True, array_like=True):
    """Who writes a stream. One stream has one writer, one rank and one attempt."""

    rank: int = 0
    world_size: int = 1
    attempt: int = 0
    """Which start of this run this is; a training resumed from a checkpoint goes back in steps and gets a higher
    number: the next one, or where it cannot know that, a time (`FIRST_TIMED_ATTEMPT`)."""
    host: str = ""
    pid: int = 0
    started_us: int = 0
    forked_from: str = ""
    """The stream this journal was copied from, when a copy went its own way."""
    local_rank: int = 0
    """Number of the process on its node."""
    mesh: dict[str, list[int]] = {}
    """Place in the device mesh: dimension to [position, size], `{"data": [3, 4], "tensor": [0, 2]}`."""


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """Asks to write a stream. Answered by `Welcome`, `Gone` or `Refuse`."""

    run_id: str
    stream: str
    info: StreamInfo
    versions: list[int] = msgspec.field(default_factory=lambda: [1])
    """Protocol versions the agent speaks; the server picks the highest it knows."""
    first_seq: int = 0
    """Seq of a new stream's first record (a fork starts after its ancestor's acknowledged part)."""
    agent_version: str = ""


class Batch(msgspec.Struct, frozen=True, array_like=True, tag="batch"):
    """Records `first .. first + count - 1` of a stream."""

    run_id: str
    stream: str
    epoch: int
    first: int
    count: int
    """How many seqs it covers. A batch that stands for records the journal no longer holds covers many with one
    `Lost`."""
    digest: bytes
    """The digest chain after its last record."""
    raw_bytes: int
    """Size of the body before compression; checked before anything is decoded."""
    body: bytes
    """zstd level 1 over records, each as uint32 little-endian length and payload."""


class Live(msgspec.Struct, frozen=True, array_like=True, tag="live"):
    """Newest values only, never stored; replaced by stored ones."""

    run_id: str
    stream: str
    step: int
    time_us: int
    values: dict[int, float] = {}


class Bye(msgspec.Struct, frozen=True, array_like=True, tag="bye"):
    """The agent's side of a stream is over. `lost_contact` when the trainer vanished without an `End` record."""

    run_id: str
    stream: str
    outcome: str
    """`ended` (an End record was sent), `killed` (the trainer's process is gone without one)."""
    time_us: int = 0


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag="welcome"):
    """Grants a stream to this connection."""

    run_id: str
    stream: str
    epoch: int
    """Fencing token: only the newest connection may write."""
    next: int
    """Seq of the first record the server does not have."""
    digest: bytes
    """The digest chain just before `next`. A journal whose own chain differs there has forked."""
    version: int = 1


class Ack(msgspec.Struct, frozen=True, array_like=True, tag="ack"):
    """Everything before `next` is committed. Read back from the cursor after COMMIT."""

    run_id: str
    stream: str
    next: int
    epoch: int = 0


class Gone(msgspec.Struct, frozen=True, array_like=True, tag="gone"):
    """The run was deleted; the agent stops sending it."""

    run_id: str
    stream: str = ""


class Refuse(msgspec.Struct, frozen=True, array_like=True, tag="refuse"):
    """Something cannot be taken. `code` is one of `fenced`, `bad_batch`, `too_large`, `version`, `busy`,
    `unauthorized`."""

    code: str
    message: str
    run_id: str = ""
    stream: str = ""
    retry_after_s: float = 0.0
    """0 means: do not try the same again."""


class Command(msgspec.Struct, frozen=True, array_like=True, tag="command"):
    """The one thing that travels back. Kind reserved from the first version; agents ignore kinds they do not know."""

    run_id: str
    command_id: str
    name: str
    arguments: dict[str, Any] = {}


AgentFrame = Hello | Batch | Live | Bye
ServerFrame = Welcome | Ack | Gone | Refuse | Command
