"""Torch on one thread, for the body of a fixture."""

from __future__ import annotations

from collections.abc import Iterator

import torch


def on_one_thread() -> Iterator[None]:
    """Tiny models run fastest, and the same everywhere, on one thread; the seed is 0, too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)
