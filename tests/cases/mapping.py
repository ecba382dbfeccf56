"""The oracle's names for events and metrics, and ours: the one table between them.

An entry is a function that finds the thing in what was recorded; `LATER` where this version records nothing of the
kind, `FUNCTION` where it is checked by calling a public function on the case's data (test_functions.py). README.md says
the same in words, case by case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from tests.cases.recordings import Recording, zero_share


class Elsewhere:
    """No way to find it in a recording."""

    def __init__(self, why: str) -> None:
        self.why = why

    def __repr__(self) -> str:
        return self.why


LATER: Final = Elsewhere("later")
FUNCTION: Final = Elsewhere("function")


@dataclass(frozen=True, kw_only=True)
class Found:
    """One happening."""

    step: int
    run: int
    where: tuple[str, ...] = ()
    severity: str = ""
    """Empty where ours says something else than the oracle's kind."""
    row: int | None = None


Runs = list[Recording]


def _events(*kinds: str, graded: bool = True, **attributes: Any) -> Callable[[Runs], Iterator[Found]]:
    def find(runs: Runs) -> Iterator[Found]:
        for at, run in enumerate(runs):
            for event in run.events(*kinds):
                if all(event.attributes.get(name) == value for name, value in attributes.items()):
                    where = (*event.where, *filter(None, [event.attributes.get("optimizer")]))
                    severity = event.severity if graded else ""
                    row = event.attributes.get("first_row")
                    yield Found(step=event.step, run=at, where=where, severity=severity, row=row)

    return find


def _partial(runs: Runs) -> Iterator[Found]:
    """Attempts in which one optimizer stepped and another was withheld."""
    for at, run in enumerate(runs):
        skipped = run.by_optimizer("amp.skipped")
        if len(skipped) > 1:
            for step in sorted(set.intersection(*map(set, skipped.values()))):
                if {values[step] for values in skipped.values()} == {0.0, 1.0}:
                    yield Found(step=step, run=at)


EVENTS: dict[str, Callable[[Runs], Iterator[Found]] | Elsewhere] = {
    "step_skipped": _events("skip"),
    "benign_calibration": _events("skip", **{"class": "settling"}),
    "scale_backoff": _events("scale_backoff"),
    "scale_growth": _events("scale_growth"),
    # That it does not end by itself is what a streak says; how far down it goes is a matter of alerts.
    "scale_collapse": _events("bad_streak", graded=False),
    "scale_below_one": LATER,
    "scale_unbounded": LATER,
    "partial_step": _partial,
    "loss_nonfinite": _events("loss_nonfinite"),
    "input_nonfinite": _events("input_nonfinite"),
    "grad_underflow": _events("layer_flushed"),
    "grad_overflow": FUNCTION,
    "grad_nan": FUNCTION,
    "buffer_nonfinite": LATER,
    "config:fp16_trainable_params": _events("half_precision_parameters", dtype="float16"),
    "config:scaler_with_bf16": LATER,
    "api_misuse:scale_changed_in_accumulation": LATER,
    "lr_ahead_of_optimizer": LATER,
    "no_grad_for_optimizer": LATER,
    "rank_origin": _events("rank_origin"),
    "act_overflow": FUNCTION,
    "compare:baseline_not_fp32": FUNCTION,
    "compare:first_divergence": FUNCTION,
    "compare:slower_than_fp32": FUNCTION,
}

SEVERITIES = {"info": "info", "warn": "warning", "critical": "critical"}


def _last(values: dict[int, float]) -> float:
    return values[max(values)]


def _scale(runs: Runs, at: str, _of: str) -> float:
    """`amp.scale@i` is the scale after iteration i: ours is `amp.scale_next`."""
    values = runs[0].values("amp.scale_next")
    return _last(values) if at == "end" else values[int(at)]


def _skips(runs: Runs, _at: str, of: str) -> float:
    skipped = runs[0].by_optimizer("amp.skipped")
    (name,) = [name for name in skipped if name.endswith(of)] if of else skipped
    return sum(skipped[name].values())


def _steps(runs: Runs, _at: str, of: str) -> float:
    run = next(run for run in runs if run.recorded.facts["optimizers"][0]["fused"]) if of == "fused" else runs[0]
    return _last(run.values("opt.steps"))


def _zeros(runs: Runs, at: str, of: str) -> float:
    frames = runs[0].frames
    layers = frames[max(frames) if at == "end" else int(at)].layers
    if of:
        return zero_share(layers[of])
    return sum(int(s.zeros) for s in layers.values()) / sum(int(s.n) for s in layers.values())


def _attempts(runs: Runs, _at: str, _of: str) -> float:
    return len(runs[0].values("opt.steps"))


Metric = Callable[[Runs, str, str], float]
METRICS: dict[str, Metric | Elsewhere] = {
    "amp.scale": _scale,
    "amp.skips": _skips,
    "opt.steps": _steps,
    "iterations": _attempts,
    "grad.zero_frac": _zeros,
    # In a recording once the step that it is of is complete, which the case's never is: c10_training.
    "grad.norm": FUNCTION,
    # The rate that the last step used; the oracle's is the one that the scheduler has set for the next.
    "lr": lambda runs, _at, _of: _last(runs[0].values("lr")) / 2,
    "sched.steps": LATER,
    "amp.recovery_steps": LATER,
    "grad.error_factor": LATER,
    "eval.nan_frac": LATER,
    "grad.norm(a)": FUNCTION,
    "grad.norm(b)": FUNCTION,
    "mean_sq(c)": FUNCTION,
    "nan.counts": FUNCTION,
    "inf.counts": FUNCTION,
    "grad.norm.local": FUNCTION,
    "grad.norm.global": FUNCTION,
    "lead_steps": FUNCTION,
    "grad.norm.sparse": FUNCTION,
    "names.common": FUNCTION,
    "records_per_step": FUNCTION,
    "hooks_after_detach": FUNCTION,
    "meta.float32_matmul_precision": FUNCTION,
    "rel_err": FUNCTION,
    "out.zero_frac": FUNCTION,
    "time_ratio.fp16": FUNCTION,
    "eager": FUNCTION,
    "compiled": FUNCTION,
}

OTHERS: dict[str, Elsewhere] = {
    "act_nan": LATER,
    "act_overflow": LATER,
    "advice": LATER,
    "coverage_note": LATER,
}
"""Of which nothing is said yet: no advice is given, and no activations are looked at."""


def split_metric(name: str) -> tuple[str, str, str]:
    """(name, iteration, parameter or optimizer) of `grad.zero_frac[0.weight]@17`."""
    found = re.fullmatch(r"([\w.]+(?:\(\w\))?)(?:\[([\w.]+)\])?(?:@(\w+))?", name)
    assert found is not None, name
    return found[1], found[3] or "end", found[2] or ""
