"""What is told of reductions: series, events, facts, and the slices that the server compares over ranks.

Invariant: a gradient that holds what an earlier reduction gave is nobody's own, and is not told as that.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch

from halfscope.instrument.attempt import Attempt
from halfscope.instrument.ddp.noting import BucketNote, Reduction, seconds
from halfscope.instrument.ddp.watching import BUCKETS_PER_MODEL, ReducedModel, ReductionWatch
from halfscope.instrument.records import Records
from halfscope.instrument.sids import Sids
from halfscope.instrument.sketching import LayerNumbers
from halfscope.instrument.watched import WatchedOptimizer
from halfscope.wire.messages import Slices

MAX_LAYERS_TOLD = 64
MAX_TOLD_IN_A_ROW = 16
"""Steps of one kind of trouble that are told, one after the other; after that only where other layers are concerned.
The series goes on."""
MAX_TIMED_BUCKETS = 64
"""Of so many the time of each is told at every step; of more, where they are sampled."""


class ReductionTeller:
    """Tells the reductions of one run."""

    def __init__(
        self,
        recorder: Records,
        watch: ReductionWatch,
        layers: LayerNumbers,
        optimizers: Sequence[WatchedOptimizer],
        *,
        num_ranks: int,
    ) -> None:
        """
        Args:
            num_ranks: of the run; a reduction among fewer names its own.
        """
        self._recorder, self._watch, self._layers, self._optimizers = recorder, watch, layers, optimizers
        self._num_ranks = num_ranks
        self._sids = Sids(recorder, {})
        self._bucket_sids: dict[int, Sids] = {}
        self._num_bytes: dict[int, int] = {}
        """By bucket, as last told."""
        self._hooks_told: list[tuple[str, str]] = []
        self._rows: Counter[str] = Counter()
        """Steps in a row that had an event of a kind."""
        self._named: dict[str, list[str]] = {}
        self._buckets: dict[str, object] = {}

    def tell(self, attempt: Attempt) -> None:
        """Adds to the row of an attempt whose values are on the host, and tells its events."""
        values: dict[int, float] = {}
        for reduction in attempt.reductions:
            reduction.arrive()
        self._own(attempt, values)
        self._times(attempt, values)
        attempt.logged = {**(attempt.logged or {}), **values}
        self._facts(attempt)
        last = {reduction.model: reduction for reduction in attempt.reductions}
        for reduction in last.values():
            if reduction.is_complete:
                for bucket in reduction.buckets:
                    self._slices(attempt, reduction, bucket)
        for reduction in attempt.reductions:
            for bucket in reduction.buckets:
                reduction.clock.give_back(bucket.began, bucket.ended)

    # ---- this rank's own gradient ----------------------------------------------------------------

    def _own(self, attempt: Attempt, values: dict[int, float]) -> None:
        nonfinite: list[str] = []
        too_large: list[str] = []
        norms: list[float] = []
        is_known = norm_is_known = True
        for model in {reduction.model for reduction in attempt.reductions}:
            ours = [reduction for reduction in attempt.reductions if reduction.model == model]
            is_own: bool | None = True
            for at, reduction in enumerate(ours):
                if at:
                    before = ours[at - 1].result_is_finite
                    is_own = False if is_own is False or before is False else is_own and before
                bad = reduction.nonfinite or reduction.too_large
                if is_own:
                    nonfinite += reduction.nonfinite
                    too_large += reduction.too_large
                elif is_own is None and bad:
                    is_known = False
                is_known &= reduction.is_complete and reduction.is_measured
            norm, scale = ours[0].norm, self._scale(attempt, self._watch.models[model])
            if len(ours) > 1 or norm is None or scale is None:
                norm_is_known = False
            else:
                norms.append(norm / scale)
        if norm_is_known:
            values[self._sids["grad.norm_local"]] = math.hypot(*norms)
        if is_known:
            values[self._sids["grad.nonfinite_local"]] = float(len(set(nonfinite)))
        self._origin(attempt, list(dict.fromkeys(nonfinite)))
        self._overflow(attempt, list(dict.fromkeys(too_large)))

    def _scale(self, attempt: Attempt, reduced: ReducedModel) -> float | None:
        """The loss scale that is on a model's gradients; None where it is not known."""
        scalers = [scaler for scaler in attempt.scalers if scaler.touched]
        if not scalers:
            return 1.0
        if len(scalers) == 1:
            scale = scalers[0].scale
        else:
            trained = {id(parameter) for parameter in reduced.model.parameters()}
            parts = zip(self._optimizers, attempt.optimizers, strict=True)
            served = {
                part.scaler
                for watched, part in parts
                if part.through_scaler and any(id(parameter) in trained for parameter in watched.parameters())
            }
            scale = attempt.scalers[served.pop()].scale if len(served) == 1 else None
        return scale if isinstance(scale, float) and scale > 0 else None

    def _origin(self, attempt: Attempt, layers: list[str]) -> None:
        where = self._news("rank_origin", layers)
        if where is not None:
            self._recorder.event(
                "rank_origin",
                attempt.step,
                time_us=attempt.completed_us,
                severity="warning",
                where=where,
                attributes={"num_nonfinite": len(layers)},
                urgent=True,
            )

    def _overflow(self, attempt: Attempt, layers: list[str]) -> None:
        where = self._news("comm_overflow", layers)
        if where is not None:
            hooks = [model.compression for model in self._watch.models if model.compression is not None]
            dtype = str(hooks[0].dtype).removeprefix("torch.") if hooks else ""
            self._recorder.event(
                "comm_overflow",
                attempt.step,
                time_us=attempt.completed_us,
                severity="warning",
                where=where,
                attributes={"dtype": dtype, "num_layers": len(layers)},
                urgent=True,
            )

    def _news(self, kind: str, layers: list[str]) -> list[str] | None:
        """Names to tell; None where there is nothing to tell any more."""
        if not layers:
            self._rows[kind] = 0
            self._named.pop(kind, None)
            return None
        self._rows[kind] += 1
        is_same = self._named.get(kind) == layers
        self._named[kind] = layers
        if is_same and self._rows[kind] > MAX_TOLD_IN_A_ROW:
            return None
        return layers[:MAX_LAYERS_TOLD]

    # ---- times and sizes -------------------------------------------------------------------------

    def _times(self, attempt: Attempt, values: dict[int, float]) -> None:
        waits = [reduction.wait_s for reduction in attempt.reductions]
        if all(wait_s is not None for wait_s in waits):
            wait_s = sum(wait for wait in waits if wait is not None)
            values[self._sids["comm.wait_s"]] = wait_s
            if attempt.step_s > 0:
                values[self._sids["rank.busy_s"]] = max(0.0, attempt.step_s - wait_s)
        for reduction in attempt.reductions:
            is_timed = len(reduction.buckets) <= MAX_TIMED_BUCKETS or reduction.is_sampled
            for bucket in reduction.buckets:
                number = bucket.layout.number
                sids = self._bucket_sids.get(number)
                if sids is None:
                    sids = self._bucket_sids[number] = Sids(self._recorder, {"bucket": str(number)})
                if is_timed and bucket.ended is not None:
                    values[sids["comm.time_s"]] = seconds(bucket.began, bucket.ended)
                if bucket.num_bytes != self._num_bytes.get(number):
                    self._num_bytes[number] = bucket.num_bytes
                    values[sids["comm.bytes"]] = float(bucket.num_bytes)

    # ---- facts -----------------------------------------------------------------------------------

    def hooks(self, step: int) -> None:
        """The hooks of all models, where they are others than those that were told."""
        models = self._watch.models
        hooks = [(model.hook, model.unwatched_because) for model in models]
        if hooks == self._hooks_told:
            return
        told, self._hooks_told = self._hooks_told, hooks
        compressions = [model.compression for model in models if model.compression is not None]
        self._recorder.facts(
            {
                "comm_hook": {
                    "name": ", ".join(dict.fromkeys(model.hook for model in models if model.hook)),
                    "watched": not any(model.unwatched_because for model in models),
                    "compresses_to": str(compressions[0].dtype).removeprefix("torch.") if compressions else "",
                }
            }
        )
        for model, hook in zip(models, hooks, strict=True):
            if model.unwatched_because and hook not in told:
                self._recorder.event(
                    "comm_hook_unwatched",
                    step,
                    where=[model.name],
                    attributes={"hook": model.hook, "reason": model.unwatched_because},
                )

    def _facts(self, attempt: Attempt) -> None:
        self.hooks(attempt.step)
        for model in self._watch.models:
            if not model.is_news or not model.layouts or not model.is_first:
                continue
            model.is_news = False
            self._buckets = {
                number: bucket
                for number, bucket in self._buckets.items()
                if int(number) // BUCKETS_PER_MODEL != model.index
            }
            for layout in model.layouts.values():
                self._buckets[str(layout.number)] = {
                    "layers": list(layout.names), "num_elements": layout.num_elements, "dtype": layout.dtype,
                }  # fmt: skip
            self._recorder.facts({"buckets": dict(self._buckets)})

    # ---- slices ----------------------------------------------------------------------------------

    def _slices(self, attempt: Attempt, reduction: Reduction, bucket: BucketNote) -> None:
        sample = bucket.sample
        if sample is None or sample.local is None or sample.reduced is None:
            return
        layout = bucket.layout
        lids = self._layers.of(layout.parameters)
        ranks = list(reduction.ranks) if reduction.num_ranks != self._num_ranks else []
        self._recorder.slices(
            Slices(
                step=attempt.step,
                time_us=attempt.completed_us,
                bucket=layout.number,
                lids=np.array(lids, "<u4").tobytes(),
                counts=np.array(layout.counts, "<u4").tobytes(),
                local=_packed(sample.local),
                reduced=_packed(sample.reduced),
                divisor=float(reduction.num_ranks),
                ranks=ranks,
            )
        )


def _packed(values: torch.Tensor) -> bytes:
    return np.ascontiguousarray(values.numpy(), "<f4").tobytes()
