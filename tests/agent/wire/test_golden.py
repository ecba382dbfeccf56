"""Golden files of every released version stay decodable: what was written to a disk or sent years ago is still
understood.

`python tests/agent/wire/test_golden.py` writes the files of a new version; those of a released one are never changed.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from halfscope.wire.codec import decode_agent_frame, decode_record, decode_server_frame, encode, unpack_body
from halfscope.wire.messages import (
    Ack,
    AgentFrame,
    Batch,
    Bye,
    Column,
    Command,
    Declare,
    End,
    Event,
    Facts,
    Gone,
    Hello,
    Layer,
    Layers,
    Live,
    Lost,
    Points,
    Record,
    Refuse,
    Series,
    ServerFrame,
    Sketches,
    Slices,
    Start,
    StreamInfo,
    Welcome,
)

GOLDEN = Path(__file__).parent / "golden" / "v1"
RUN, STREAM = "01jabcdefghjkmnp", "00112233445566ff"
NAN_WITH_PAYLOAD = b"\x01\x02\x03\x04\x05\x06\xf8\x7f"

RECORDS: dict[str, Record] = {
    "start": Start(
        time_us=1_700_000_000_000_000,
        project="vision",
        name="résumé ∞",
        config={"lr": 3e-4, "layers": [64, 64], "seed": None, "amp": True, "big": 2**63, "small": -(2**63)},
        tags=["demo", "fp16"],
        environment={"torch": "2.13.0"},
        start_step=100,
        agent_version="0.1.0",
    ),
    "declare": Declare(
        series=[
            Series(sid=0, name="loss", unit="1"),
            Series(sid=1, name="amp.skipped", unit="", kind="flag", reduction="max", labels={"optimizer": "Adam"}),
        ]
    ),
    "points": Points(
        steps=struct.pack("<3q", -1, 0, 2**40),
        times_us=struct.pack("<3q", 1, 2, 3),
        columns=[
            Column(sid=0, values=struct.pack("<3d", float("inf"), -0.0, 5e-324)),
            Column(sid=1, values=NAN_WITH_PAYLOAD, rows=struct.pack("<I", 2)),
        ],
    ),
    "layers": Layers(
        layers=[
            Layer(lid=0, name="block.3.mlp.fc2.weight", shape=[4, 2], dtype="float32"),
            Layer(lid=1, name="head.bias", shape=[], dtype="bfloat16", part="data:1/4"),
        ]
    ),
    "sketches": Sketches(
        step=20,
        time_us=21,
        point="unscale",
        clipped="no",
        scale=65536.0,
        lids=struct.pack("<2I", 1, 0),
        # The second layer: 8 elements, of which 1 is zero, 1 NaN, and 6 lie in the bins of 2^-3, 2^-1 and 2^0.
        counts=struct.pack("<10q", 1, 0, 0, 0, 1, 8, 1, 1, 0, 0),
        moments=struct.pack("<8d", 0.0, 0.0, 0.0, float("inf"), -1.5, 2.25, 1.0, 0.125),
        lowest=struct.pack("<2h", 0, -3),
        num_bins=struct.pack("<2H", 0, 4),
        bins=struct.pack("<4H", 3, 0, 2, 1),
        width=2,
        of="grad",
    ),
    "slices": Slices(
        step=7,
        time_us=1_700_000_000_000_700,
        bucket=2,
        lids=struct.pack("<2I", 0, 3),
        counts=struct.pack("<2I", 1, 2),
        local=struct.pack("<3f", 1.0, float("inf"), -0.0),
        reduced=struct.pack("<3f", 0.5, float("nan"), 2.0**-149),
        divisor=4.0,
        ranks=[0, 1, 2, 3],
    ),
    "event": Event(
        kind="skip",
        step=7,
        time_us=8,
        severity="warning",
        where=["Adam"],
        attributes={"class": "streak", "scale": 65536.0, "nonfinite": ["fc.weight"], "loss_finite": True},
    ),
    "facts": Facts(time_us=9, facts={"precision": "FP16-AMP", "memory": {"parameter_bytes": 123}}),
    "lost": Lost(first_seq=5, last_seq=9, reason="journal quota", time_us=10, counts={"points": 50}),
    "end": End(outcome="exception", step=11, time_us=12, error_type="RuntimeError", message="boom"),
}

AGENT_FRAMES: dict[str, AgentFrame] = {
    "hello": Hello(
        run_id=RUN,
        stream=STREAM,
        info=StreamInfo(
            rank=1,
            world_size=8,
            attempt=2,
            host="node",
            pid=4242,
            started_us=13,
            forked_from="aabbccddeeff0011",
            local_rank=1,
            mesh={"data": [1, 4], "tensor": [0, 2]},
        ),
        versions=[1],
        first_seq=14,
        agent_version="0.1.0",
    ),
    "batch": Batch(
        run_id=RUN,
        stream=STREAM,
        epoch=3,
        first=15,
        count=2,
        digest=bytes(range(16)),
        raw_bytes=16,
        # The two records b"first" and b"two" behind their lengths, as zstd wrote them in 2026.
        body=bytes.fromhex("28b52ffd20108100000500000066697273740300000074776f"),
    ),
    "live": Live(run_id=RUN, stream=STREAM, step=16, time_us=17, values={0: 1.5, 1: float("-inf")}),
    "bye": Bye(run_id=RUN, stream=STREAM, outcome="killed", time_us=18),
}

SERVER_FRAMES: dict[str, ServerFrame] = {
    "welcome": Welcome(run_id=RUN, stream=STREAM, epoch=4, next=19, digest=bytes(range(16, 32)), version=1),
    "ack": Ack(run_id=RUN, stream=STREAM, next=20, epoch=4),
    "gone": Gone(run_id=RUN, stream=STREAM),
    "refuse": Refuse(code="busy", message="try again later", run_id=RUN, stream=STREAM, retry_after_s=2.5),
    "command": Command(run_id=RUN, command_id="c1", name="stop", arguments={"at_step": 5}),
}


def golden(kind: str) -> bytes:
    return (GOLDEN / f"{kind}.msgpack").read_bytes()


@pytest.mark.parametrize("kind", RECORDS)
def test_a_record_of_version_1_is_read_and_written_as_it_was(kind: str) -> None:
    """The bytes on disk mean this record, and this record is these bytes."""
    assert decode_record(golden(kind)) == RECORDS[kind]
    assert encode(RECORDS[kind]) == golden(kind)


@pytest.mark.parametrize("kind", AGENT_FRAMES)
def test_an_agent_frame_of_version_1_is_read_and_written_as_it_was(kind: str) -> None:
    """An agent of version 1 is understood by this server."""
    assert decode_agent_frame(golden(kind)) == AGENT_FRAMES[kind]
    assert encode(AGENT_FRAMES[kind]) == golden(kind)


@pytest.mark.parametrize("kind", SERVER_FRAMES)
def test_a_server_frame_of_version_1_is_read_and_written_as_it_was(kind: str) -> None:
    """A server of version 1 is understood by this agent."""
    assert decode_server_frame(golden(kind)) == SERVER_FRAMES[kind]
    assert encode(SERVER_FRAMES[kind]) == golden(kind)


def test_the_body_of_a_golden_batch_is_two_records() -> None:
    """Its compression is read whatever version of zstd is here."""
    batch = AGENT_FRAMES["batch"]
    assert isinstance(batch, Batch)
    assert [bytes(payload) for payload in unpack_body(batch.body, batch.raw_bytes)] == [b"first", b"two"]


def test_every_kind_has_a_golden_file_and_no_file_is_left_over() -> None:
    """A new kind of message is not released without one."""
    assert {path.stem for path in GOLDEN.iterdir()} == {*RECORDS, *AGENT_FRAMES, *SERVER_FRAMES}


def test_a_nan_keeps_its_bits() -> None:
    """Columns are bytes: the payload of a NaN is not made canonical on the way."""
    points = decode_record(golden("points"))
    assert isinstance(points, Points)
    assert points.columns[1].values == NAN_WITH_PAYLOAD


if __name__ == "__main__":
    for name, message in (RECORDS | AGENT_FRAMES | SERVER_FRAMES).items():
        (GOLDEN / f"{name}.msgpack").write_bytes(encode(message))
