"""Gradients of many kinds, for tests of sketches on the host and on devices."""

from __future__ import annotations

import math

import torch


def some(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Values over many exponents, with some of every kind."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=generator) * 2.0 ** torch.randint(-40, 9, shape, generator=generator)
    flat = values.view(-1)
    if flat.numel() > 20:
        flat[torch.randperm(flat.numel(), generator=generator)[:10]] = torch.tensor(
            [0.0, -0.0, 0.0, math.nan, math.inf, -math.inf, math.inf, 1e-42, -1e-44, 0.0]
        )
    return values.to(dtype)


GRADS = [
    lambda: some(3, 50, seed=1),
    lambda: some(80, 900, seed=2),
    lambda: some(150, 100, seed=3).t(),
    lambda: some(64, seed=4, dtype=torch.float16),
    lambda: some(5, 64, seed=5, dtype=torch.bfloat16),
    lambda: torch.zeros(40),
    lambda: torch.empty(0),
    lambda: some(30, seed=6, dtype=torch.float8_e5m2),
]
"""Gradients of one optimizer, with the float64 ones left out: small, large, strided, narrow, zero and empty."""
