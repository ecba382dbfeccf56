"""The norm of the gradients that an optimizer is handed, from what `clip_grad_norm_` has computed itself.

Sets no hooks and reads no gradient as a whole; on the host, with the compiled helper, only.
Invariant: a norm is given only for the very gradients that were clipped, where torch has counted no change of them
since and a sample of them is what it was; and only while it has agreed with one that was read, at first and as often as
one is read anyway.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from halfscope.instrument.attempt import OptimizerAttempt
from halfscope.instrument.watched import WatchedOptimizer
from halfscope.probes import gradients

PROOFS = 8
"""Norms that are read all the same, and have to agree with those given here. A training that changes its gradients
behind torch's back does so from the first step on, nearly always."""
AGREES_REL = 1e-4
"""Both are sums in float32, of some millions of elements."""
_ADDED = 1e-6
"""By torch, to the norm that it divides by."""
_WIDE = frozenset({torch.float32, torch.float64})


@dataclass(frozen=True, slots=True)
class _Clipped:
    """What is known of gradients since they were clipped."""

    part: OptimizerAttempt
    norm: float
    state: int
    """Of the gradients, right after it."""


class HandedNorms:
    """Of a run's optimizers."""

    def __init__(self) -> None:
        self._totals: dict[int, tuple[torch.Tensor, float, WatchedOptimizer, OptimizerAttempt]] = {}
        """By optimizer, the norm of all its gradients, which are about to be clipped."""
        self._clipped: dict[int, _Clipped] = {}
        self._num_agreed: dict[int, int] = {}
        """By optimizer; -1: one has not."""

    def clips(
        self,
        watched: WatchedOptimizer,
        part: OptimizerAttempt,
        grads: Sequence[torch.Tensor],
        tensors: Sequence[torch.Tensor],
        total: torch.Tensor | None,
    ) -> float | None:
        """An optimizer's gradients are about to be clipped; their norm where torch has computed that of exactly these.

        Args:
            grads: those of the optimizer.
            tensors: those that are clipped.
            total: their norm, on the host.
        """
        self._totals.pop(watched.index, None)
        self._clipped.pop(watched.index, None)
        if type(total) is not torch.Tensor or total.dtype not in _WIDE or len(grads) != len(tensors):
            return None
        if set(map(id, grads)) != set(map(id, tensors)):
            return None
        norm = total.item()
        if not gradients.SMALLEST_TRUSTED_NORM <= norm <= gradients.LARGEST_TRUSTED_NORM:
            return None
        if gradients.IS_QUICK and self._num_agreed.get(watched.index, 0) >= 0:
            self._totals[watched.index] = total, norm, watched, part
        return norm

    def clipped(self, total: torch.Tensor, max_norm: Any) -> None:
        """Gradients whose norm this was were scaled down to another."""
        for index, (known, norm, watched, part) in tuple(self._totals.items()):
            if known is not total:
                continue  # another thread's
            del self._totals[index]
            if not isinstance(max_norm, (int, float)):
                continue
            state = gradients.state(watched.optimizer.param_groups)
            handed = norm * min(max_norm / (norm + _ADDED), 1.0)
            if state is not None and gradients.SMALLEST_TRUSTED_NORM <= handed <= gradients.LARGEST_TRUSTED_NORM:
                self._clipped[index] = _Clipped(part, handed, state)

    def norm(self, watched: WatchedOptimizer, part: OptimizerAttempt) -> float | None:
        """Of the gradients that an optimizer is handed now; None where that has to be read."""
        found = self._clipped.pop(watched.index, None)
        if found is None or found.part is not part:
            return None
        return found.norm if gradients.state(watched.optimizer.param_groups) == found.state else None

    def is_proven(self, watched: WatchedOptimizer) -> bool:
        """Whether `norm` has agreed often enough with what was read."""
        return self._num_agreed.get(watched.index, 0) >= PROOFS

    def compare(self, watched: WatchedOptimizer, given: float, read: float) -> None:
        """`norm` was given, and read all the same."""
        agrees = math.isclose(given, read, rel_tol=AGREES_REL)
        self._num_agreed[watched.index] = self._num_agreed.get(watched.index, 0) + 1 if agrees else -1
