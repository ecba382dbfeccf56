"""The demo's images and the order in which they are read."""

from __future__ import annotations

import pytest
import torch
from halfscope.demo.data import NUM_HELD_OUT, SHARD_SHIFT_ROWS, SIDE, Digits, batch, load_digits, shift_down


@pytest.fixture(scope="module")
def digits() -> Digits:
    return load_digits()


def test_held_out_images_are_kept_apart(digits: Digits) -> None:
    """All 1,797 images are used once: a fifth held out, the rest trained on, with every class in both parts."""
    assert digits.train_images.shape == (1797 - NUM_HELD_OUT, SIDE, SIDE)
    assert digits.held_out_images.shape == (NUM_HELD_OUT, SIDE, SIDE)
    assert set(digits.train_labels.tolist()) == set(digits.held_out_labels.tolist()) == set(range(10))


def test_images_are_scikit_learns(digits: Digits) -> None:
    """Image by image and label by label the data set that `sklearn.datasets.load_digits` gives, in another order."""
    from sklearn.datasets import load_digits as read

    pixels, labels = read(return_X_y=True)
    expected = sorted([*row, label] for row, label in zip((pixels / 16.0).tolist(), labels.tolist(), strict=True))
    images = torch.cat([digits.train_images, digits.held_out_images]).flatten(1)
    targets = torch.cat([digits.train_labels, digits.held_out_labels])
    assert sorted([*row, label] for row, label in zip(images.tolist(), targets.tolist(), strict=True)) == expected


def test_batch_depends_on_seed_and_step_alone(digits: Digits) -> None:
    """The same step of the same seed reads the same images, whatever was read before; another step reads others."""
    first = batch(digits, seed=7, step=3, size=32, odd_shard=False)
    batch(digits, seed=7, step=4, size=32, odd_shard=False)
    again = batch(digits, seed=7, step=3, size=32, odd_shard=False)
    other = batch(digits, seed=7, step=4, size=32, odd_shard=False)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])


def test_odd_shard_moves_some_images_down_and_changes_nothing_else(digits: Digits) -> None:
    """Inside the odd shard the labels are the same, and an image is either as it was or lower on the page."""
    num_moved = 0
    for step in range(60):
        images, labels = batch(digits, seed=7, step=step, size=32, odd_shard=False)
        odd_images, odd_labels = batch(digits, seed=7, step=step, size=32, odd_shard=True)
        assert torch.equal(labels, odd_labels)
        lower = shift_down(images, SHARD_SHIFT_ROWS)
        moved = (odd_images != images).flatten(1).any(1)
        num_moved += int(moved.sum())
        assert torch.equal(odd_images[moved], lower[moved])
    assert 0 < num_moved < 60 * 32 // 10


def test_shifted_images_begin_with_blank_rows(digits: Digits) -> None:
    """What is moved down has blank rows above it and keeps its size."""
    lower = shift_down(digits.train_images, 2)
    assert lower.shape == digits.train_images.shape
    assert not lower[:, :2].any()
    assert torch.equal(lower[:, 2:], digits.train_images[:, : SIDE - 2])
