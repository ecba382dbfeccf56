"""Structural zeros as of each frame: the same as asked anew for every frame."""

from __future__ import annotations

import numpy as np
from halfscope.sketch import structural_zeros
from halfscope_server.alerts.zeros import lost_shares
from hypothesis import given, settings
from hypothesis import strategies as st

LAYERS, ELEMENTS = 5, 64


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["falls", "falls and grows", "jumps", "steady"]), st.booleans())
def test_each_frame_is_judged_as_if_nothing_had_come_after_it(seed: int, course: str, of_each_layer: bool) -> None:
    """Scales that collapse and recover, layers that come, go and are not finite: against the whole function on every
    beginning of the run."""
    rng = np.random.default_rng(seed)
    num_frames = int(rng.integers(2, 70))
    edges = np.sort(rng.integers(0, num_frames, 3))
    legs = {"falls": (16, 8, 0, -6), "falls and grows": (14, -2, 3, 12), "steady": (10, 10, 11, 10)}
    level = np.repeat(legs.get(course, rng.integers(-8, 16, 4)), np.diff(edges, prepend=0, append=num_frames))
    level_KL = level[:, None] + (rng.integers(0, 2, LAYERS) * 6.0 if of_each_layer else np.zeros(1))
    n = np.where(rng.random((num_frames, LAYERS)) < 0.95, ELEMENTS, 0)
    # More zeros the smaller the scale, about a level of each layer's own; sometimes all of them.
    base = rng.choice([0, 8, 30], LAYERS)
    lost = np.where(level_KL < rng.integers(-4, 8, LAYERS), rng.integers(0, 20), 0)
    zeros = np.clip(base + lost + rng.integers(0, 1 + rng.integers(0, 6), n.shape), 0, n)
    gone = (rng.random(n.shape) < 0.1) | (np.arange(num_frames)[:, None] % 9 < rng.choice([0, 0, 4], LAYERS))
    gone |= rng.random(num_frames)[:, None] < 0.05
    zeros = np.where(gone, n, zeros)
    nonzero = np.maximum(n - zeros - (rng.random(n.shape) < 0.05), 0)
    near = np.where(rng.random(n.shape) < rng.choice([0.1, 0.6]), nonzero // rng.integers(1, 5, n.shape), 0)
    newest = int(rng.integers(1, num_frames + 1))
    found = lost_shares(zeros=zeros, n=n, nonzero=nonzero, near_floor=near, level=level_KL, num_newest=newest)
    for at in rng.integers(num_frames - newest, num_frames, 8).tolist():
        before = slice(0, at + 1)
        structural = structural_zeros(
            zeros=zeros[before],
            n=n[before],
            nonzero=nonzero[before],
            near_floor=near[before],
            scale=np.broadcast_to(2.0**level_KL, n.shape)[before],
        )[-1]
        row = found[at - num_frames + newest]
        assert np.array_equal(np.isnan(row), np.isnan(structural)), at
        np.testing.assert_allclose(zeros[at] - row * n[at], structural, atol=1e-9)
