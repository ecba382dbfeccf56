"""Which zeros are structural: made-up runs whose losses are known because the test makes them."""

from __future__ import annotations

import numpy as np
import pytest
from halfscope.sketch import excess_zero_share, structural_zeros
from halfscope.sketch.structural import HALF_WINDOW, nearest
from numpy.typing import NDArray

N = 10_000
ROOM = 0.0


def lost_share(zero_share: list[float], near: list[float], scale_log2: list[float]) -> NDArray[np.float64]:
    """The excess of one layer's frames, from shares."""
    zeros = np.round(np.array(zero_share) * N).astype(np.int64)
    nonzero = N - zeros
    baseline = structural_zeros(
        zeros=zeros,
        n=np.full(zeros.shape, N),
        nonzero=nonzero,
        near_floor=np.round(np.array(near) * nonzero).astype(np.int64),
        scale=2.0 ** np.array(scale_log2),
    )
    return excess_zero_share(zeros, np.full(zeros.shape, N), baseline)


def test_zeros_beyond_those_of_a_frame_with_room_are_lost() -> None:
    """Half of the layer is always zero; at the smaller scale half of the rest has gone."""
    found = lost_share([0.5] * 5 + [0.75] * 5, [ROOM] * 5 + [0.9] * 5, [16] * 5 + [0] * 5)
    assert found[:5] == pytest.approx(0.0)
    assert found[5:] == pytest.approx(0.5)


def test_without_a_frame_with_room_nothing_is_known() -> None:
    """Every frame lies near the floor: how many zeros are structural cannot be told."""
    assert np.isnan(lost_share([0.5] * 8, [0.4] * 8, [8] * 8)).all()


def test_a_later_frame_with_room_tells_of_earlier_ones() -> None:
    """A scale that starts too small and grows."""
    found = lost_share([0.6] * 3 + [0.2] * 3, [0.95] * 3 + [ROOM] * 3, [0] * 3 + [16] * 3)
    assert found[:3] == pytest.approx(0.5)


@pytest.mark.parametrize("near", [ROOM, 0.0005, 0.005, 0.02])
def test_zeros_that_vary_from_batch_to_batch_are_not_lost(near: float) -> None:
    """A sparse embedding: which rows are touched changes, and no more can be lost than lies near the floor."""
    rng = np.random.default_rng(0)
    shares = rng.uniform(0.5, 0.95, 200)
    rooms = np.where(rng.random(200) < 0.5, near, ROOM)
    found = lost_share(shares.tolist(), rooms.tolist(), [16] * 200)
    assert np.nanmax(found) <= near * 1.25  # counts are whole


def test_zeros_that_vary_are_not_lost_after_a_fall_of_the_scale_either() -> None:
    """An embedding whose scale fell for good: many frames near the floor, and only those before it had room. A few of
    many exceed the most of a few, and that proves nothing; what leaves the range does."""
    rng = np.random.default_rng(2)
    shares = np.r_[rng.normal(0.6, 0.01, 40), rng.normal(0.6, 0.01, 150)]
    args = [ROOM] * 40 + [0.1] * 150, [11.0] * 40 + [8.0] * 150
    assert (lost_share(shares.tolist(), *args) == 0).all()
    found = lost_share([*shares[:40], *(shares[40:] + 0.1)], [ROOM] * 40 + [0.4] * 150, args[1])
    assert np.median(found[40:]) == pytest.approx(0.1 / 0.4, abs=0.06)


def test_units_that_die_while_gradients_shrink_are_not_lost() -> None:
    """ReLU units die slowly as the loss falls; the scale grows meanwhile, and the frames keep their room."""
    found = lost_share(np.linspace(0.05, 0.6, 400).tolist(), [ROOM] * 400, np.linspace(10, 16, 400).tolist())
    assert (found == 0).all()


def test_what_was_lost_upstream_shows_though_frames_have_room() -> None:
    """Whole rows are gone with the smaller scale, and what is left of the layer lies far above the floor."""
    zero_share = [0.1, 0.11, 0.1, 0.12, 0.1, 0.55, 0.56, 0.55, 0.54, 0.56]
    found = lost_share(zero_share, [ROOM] * 10, [16] * 5 + [0] * 5)
    assert found[:5] == pytest.approx(0.0)
    assert found[5:] == pytest.approx(0.49, abs=0.02)


def test_a_change_of_scale_proves_nothing_where_zeros_vary_as_much_in_themselves() -> None:
    """The groups overlap, or lie no further apart than each is wide."""
    rng = np.random.default_rng(1)
    shares = np.r_[rng.uniform(0.5, 0.9, 40), rng.uniform(0.55, 0.95, 40)]
    assert (lost_share(shares.tolist(), [ROOM] * 80, [16] * 40 + [4] * 40) == 0).all()


def test_a_layer_flushed_whole_is_lost_whole() -> None:
    """Zero everywhere at once: all that was not structural is gone, whether frames with room were seen or not."""
    assert lost_share([0.3] * 4 + [1.0] * 2, [ROOM] * 4 + [0] * 2, [16] * 6)[4:] == pytest.approx(1.0)
    assert lost_share([0.3] * 4 + [1.0] * 2, [0.5] * 4 + [0] * 2, [16] * 6)[4:] == pytest.approx(1.0)
    assert lost_share([0.3] * 4 + [1.0] * 2 + [0.3] * 4, [ROOM] * 10, [16] * 10)[4:6] == pytest.approx(1.0)


@pytest.mark.parametrize(("scale_after_log2", "is_known"), [(16, False), (17, False), (4, True)])
def test_a_loss_of_zero_is_not_underflow_of_every_layer(scale_after_log2: int, is_known: bool) -> None:
    """All layers at once, with room just before: unknown, as a hinge loss does that too; with a smaller scale lost."""
    zeros = np.array([[2_000, 0]] * 5 + [[N, N]] * 5)
    scale = 2.0 ** np.array([16] * 5 + [scale_after_log2] * 5)
    nonzero = N - zeros
    found = structural_zeros(
        zeros=zeros, n=np.full(zeros.shape, N), nonzero=nonzero, near_floor=nonzero * 0, scale=scale
    )
    assert (found[:5] == zeros[:5]).all()
    assert (found[5:] == zeros[0]).all() if is_known else np.isnan(found[5:]).all()


def test_one_of_two_layers_without_gradient_is_lost_whole() -> None:
    """The other one shows that there is a loss."""
    zeros = np.array([[2_000, 0]] * 5 + [[N, 0]] * 5)
    nonzero = N - zeros
    found = structural_zeros(
        zeros=zeros, n=np.full(zeros.shape, N), nonzero=nonzero, near_floor=nonzero * 0, scale=np.full(10, 65536.0)
    )
    assert (found[5:, 0] == 2_000).all()


def test_a_layer_that_was_never_alive_is_unknown() -> None:
    """A branch that is never used has zeros for another reason."""
    assert np.isnan(lost_share([1.0] * 6, [0] * 6, [16] * 6)).all()


def test_a_branch_that_is_used_now_and_then_is_not_lost() -> None:
    """An expert without a token in this batch: all zero, and back with room at the same scale, again and again."""
    zero_share = [0.1, 1.0, 0.2, 1.0, 1.0, 0.1, 0.1, 1.0, 0.15]
    assert (lost_share(zero_share, [ROOM] * 9, [16] * 9) == 0).all()


def test_a_branch_known_to_be_used_now_and_then_is_not_lost_while_it_is_not_back_yet() -> None:
    """Else the newest frame would be an alarm each time; where the scale has come down since, it may be one."""
    zero_share = [0.1, 1.0, 0.2, 1.0, 0.1, 1.0, 1.0]
    assert (lost_share(zero_share, [ROOM] * 7, [16] * 7) == 0).all()
    lower = lost_share(zero_share, [ROOM] * 7, [16] * 5 + [15, 9])
    assert lower[:5].tolist() == [0.0] * 5
    assert lower[5:] == pytest.approx(1.0)


def test_before_its_first_gradient_a_layer_lost_nothing() -> None:
    """Behind an adapter or a residual branch that begins at zero; unless the first gradient is near the floor, or came
    with a larger scale."""
    zero_share = [1.0, 1.0, 0.1, 0.1]
    assert (lost_share(zero_share, [ROOM] * 4, [16, 15, 15, 15]) == 0).all()
    assert lost_share(zero_share, [0.2] * 4, [16] * 4)[:2] == pytest.approx(1.0)
    assert lost_share(zero_share, [ROOM] * 4, [4, 4, 16, 16])[:2] == pytest.approx(1.0)


def test_frames_with_nan_tell_nothing_and_are_no_measure() -> None:
    """A frame that is all NaN is unknown, and its count of zeros is nobody's baseline."""
    zeros, nonzero = np.array([1000, 0, 6000, 6000]), np.array([9000, 0, 4000, 4000])
    nonzero[2] -= 1  # one NaN
    baseline = structural_zeros(
        zeros=zeros, n=np.full(4, N), nonzero=nonzero, near_floor=[0, 0, 0, 4000], scale=[65536.0, 65536.0, 65536.0, 1]
    )
    assert np.isnan(baseline[1])
    assert baseline[3] == pytest.approx(1000)


def test_a_layer_that_was_not_sketched_is_unknown_there() -> None:
    """No element, no number."""
    baseline = structural_zeros(
        zeros=[[5, 0], [5, 3]], n=[[10, 0], [10, 10]], nonzero=[[5, 0], [5, 7]], near_floor=[[0, 0], [0, 0]],
        scale=[np.nan, np.nan],
    )  # fmt: skip
    np.testing.assert_array_equal(baseline, [[5, np.nan], [5, 3]])


@pytest.mark.parametrize("shape", [(0, 3), (0, 0), (2, 0), (0,)])
def test_of_nothing_there_is_nothing_to_say(shape: tuple[int, ...]) -> None:
    """Layers without a frame yet, and frames without a layer, are no error."""
    nothing = np.zeros(shape, np.int64)
    found = structural_zeros(
        zeros=nothing, n=nothing, nonzero=nothing, near_floor=nothing, scale=np.full((shape[0], 1), 65536.0)
    )
    assert found.shape == shape


def test_layers_do_not_touch_each_other() -> None:
    """All layers at once give what each gives alone."""
    rng = np.random.default_rng(3)
    zeros = rng.integers(0, N, (60, 7))
    zeros[rng.random(zeros.shape) < 0.1] = N
    nonzero = N - zeros
    near = (nonzero * rng.choice([0, 0.0004, 0.01, 0.7], zeros.shape)).astype(np.int64)
    scale = 2.0 ** np.repeat([16, 4, 16, 0, 10, 11], 10)
    n = np.full(zeros.shape, N)
    whole = structural_zeros(zeros=zeros, n=n, nonzero=nonzero, near_floor=near, scale=scale)
    for at in range(7):
        one = structural_zeros(
            zeros=zeros[:, at], n=n[:, at], nonzero=nonzero[:, at], near_floor=near[:, at], scale=scale
        )
        np.testing.assert_array_equal(one, whole[:, at])
    assert ((whole <= zeros) | np.isnan(whole)).all()


def test_nearest_looks_at_as_many_frames_before_as_after() -> None:
    """Against a plain search, frame by frame."""
    rng = np.random.default_rng(4)
    values, mask = rng.random((5, 70)), rng.random((5, 70)) < [[0.9], [0.0], [0.3], [0.05], [1.0]]
    asked = np.nonzero(rng.random((5, 70)) < 0.7)
    for layer, frame, most, least, count in zip(*asked, *nearest(values, mask, *asked), strict=True):
        there = np.flatnonzero(mask[layer])
        near = [*there[there < frame][-HALF_WINDOW:], *there[there >= frame][:HALF_WINDOW]]
        assert count == len(near)
        assert most == max(values[layer, near], default=-np.inf)
        assert least == min(values[layer, near], default=np.inf)
