"""The verdict of comparisons on many real trainings: false alarms among healthy pairs, and what is found of bad ones.

    python -m tests.calibrate [--share SHARE] [--folder FOLDER]

prints `name value unit` lines, and what went wrong on standard error. The long form of
tests/server/compare/test_acceptance.py; minutes on two processors. Invariant: a pair that is healthy and is called
worse or better counts as a false alarm, whatever is said besides.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from halfscope_server.compare.comparison import Comparison
from halfscope_server.compare.types import Report
from halfscope_server.store.store import Store

from tests.helpers.compared_trainings import NUM_OUTLIERS, SMALL_STEPS, TROUBLE_STEP, Recipe
from tests.helpers.comparing import Recordings
from tests.helpers.keeper import keep
from tests.helpers.preloaded import Preloaded

NUM_PAIRS = 20
KINDS: dict[str, Recipe] = {
    "adam": Recipe(),
    "restless": Recipe(learning_rate=2e-3, eps=1e-12),
    "plain": Recipe(net="plain"),
    "momentum": Recipe(net="plain", optimizer="sgd", learning_rate=0.05),
    "clipped": Recipe(net="plain", max_norm=1.0),
}
"""Healthy in any precision."""
INDUCTOR = """
import torch
def squared(values):
    half = values.to(torch.float16)
    return (half * half).float()
values = torch.tensor([5000.0])
import halfscope
(found,) = halfscope.compare_tensors({"y": torch.compile(squared)(values)}, {"y": squared(values)})
print(int(found.diverges and found.nonfinite == 1 and found.reference_nonfinite == 0))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bad:
    """A pair that must be called worse, with what is to be said of it."""

    reason: str
    baseline: Recipe
    member: Recipe
    step: int
    layer: str


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.calibrate")
    parser.add_argument("--share", type=float, default=1.0, help="of the pairs, for a quick look")
    parser.add_argument("--folder", type=Path, help="keep the trainings here, and use those that are there")
    parser.add_argument("--without-compiler", action="store_true", help="leave out what needs a C++ compiler")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="halfscope-calibrate-"))
    try:
        with Preloaded() as python:
            store = Store.open(f"sqlite:///{folder / 'halfscope.db'}")
            recordings = Recordings(given.folder or folder / "recordings", store, python)
            _healthy(recordings, max(2, round(NUM_PAIRS * given.share)))
            _bad(recordings, max(1, round(3 * given.share)))
            _slow(recordings)
            store.close()
        if not given.without_compiler:
            _compiled()
    finally:
        shutil.rmtree(folder)
    return 0


def _healthy(recordings: Recordings, count: int) -> None:
    kinds = list(KINDS.values())
    seeds = [
        (replace(kinds[at % len(kinds)], seed=at), replace(kinds[at % len(kinds)], seed=at + 1)) for at in range(count)
    ]
    _alarms(recordings, "seeds", seeds)
    for precision in ("FP16", "BF16-AMP"):
        pairs = [(one, replace(one, precision=precision)) for one, _ in seeds]
        _alarms(recordings, precision.lower().replace("-", "_"), pairs)
    # Five repeats of each, so that there is a band of noise.
    groups = [
        [*(replace(kind, seed=seed) for seed in range(3)), *(replace(kind, seed=s, precision="FP16") for s in range(2))]
        for kind in kinds[: max(1, count // 4)]
    ]
    _alarms(recordings, "repeats", groups)


def _alarms(recordings: Recordings, name: str, groups: list[tuple[Recipe, ...]] | list[list[Recipe]]) -> None:
    """How many verdicts of members that are healthy say otherwise, and in how many a layer is said to part."""
    outcomes: Counter[str] = Counter()
    parted = reasons = 0
    for recipes in groups:
        report = Comparison(recordings.views(*recipes)).report
        outcomes.update(verdict.outcome for verdict in report.verdicts)
        parted += sum(numerics.first_step is not None for numerics in report.numerics)
        reasons += sum(bool(verdict.reasons) for verdict in report.verdicts)
        if {"worse", "better"} & {verdict.outcome for verdict in report.verdicts} or any(
            numerics.first_step is not None for numerics in report.numerics
        ):
            _complain(recipes, report)
    total = sum(outcomes.values())
    _print(f"compare.{name}.false_alarms", outcomes["worse"] + outcomes["better"], f"of {total}")
    _print(f"compare.{name}.equal", outcomes["equal"], f"of {total}")
    _print(f"compare.{name}.layers_parted", parted, f"of {total}")
    _print(f"compare.{name}.reasons", reasons, f"of {total}")


def _bad_pairs(num_seeds: int) -> Iterator[Bad]:
    for seed in range(num_seeds):
        for kind in (Recipe(seed=seed), Recipe(seed=seed, learning_rate=2e-3)):
            half = replace(kind, precision="FP16")
            for power, step in ((-5, TROUBLE_STEP), (-7, TROUBLE_STEP)):
                yield Bad(
                    reason="underflow",
                    baseline=kind,
                    member=replace(half, held_scale=2.0**power),
                    step=step,
                    layer="narrow",
                )
            yield Bad(reason="underflow", baseline=kind, member=replace(half, scale=2.0**-6), step=0, layer="narrow")
            hard = replace(kind, num_outliers=NUM_OUTLIERS)
            for precision, reason in (("FP16", "scale_collapsed"), ("FP16-unscaled", "nonfinite_applied")):
                member = replace(hard, precision=precision)
                yield Bad(reason=reason, baseline=hard, member=member, step=TROUBLE_STEP, layer="stem")
        for net in ("digits", "plain"):
            slow = Recipe(seed=seed, net=net, learning_rate=SMALL_STEPS)
            yield Bad(reason="lost_updates", baseline=slow, member=replace(slow, precision="BF16"), step=0, layer="")


def _bad(recordings: Recordings, num_seeds: int) -> None:
    """How often each kind is called worse, and with the right reason, layer and step."""
    seen: dict[str, Counter[str]] = {}
    for bad in _bad_pairs(num_seeds):
        report = Comparison(recordings.views(bad.baseline, bad.member)).report
        (verdict,) = report.verdicts
        step = verdict.from_step
        right = {
            "worse": verdict.outcome == "worse",
            "reason": bool(verdict.reasons) and verdict.reasons[0].id == bad.reason,
            "layer": verdict.layer.startswith(bad.layer),
            "step": step is not None and bad.step <= step <= bad.step + bad.member.every,
        }
        counts = seen.setdefault(bad.reason, Counter())
        counts.update(name for name, is_right in right.items() if is_right)
        counts["all"] += 1
        if not all(right.values()):
            _complain([bad.baseline, bad.member], report)
    for reason, counts in seen.items():
        for name in ("worse", "reason", "layer", "step"):
            _print(f"compare.{reason}.{name}", counts[name], f"of {counts['all']}")


def _slow(recordings: Recordings) -> None:
    """Layers of 64 x 64 on a CPU: FP16 takes 1.5 to 50 times as long, for certain. Needs a machine that is idle."""
    speedup = Comparison(recordings.views("tiny_fp32", "tiny_fp16")).cost[1].speedup
    is_told = speedup is not None and speedup.high is not None and speedup.high < 1 and 1.5 <= 1 / speedup.value <= 50
    _print("compare.small_layers_are_slower_in_fp16", int(is_told), "of 1")


def _compiled() -> None:
    """A real compiler's graph against eager FP16."""
    done = subprocess.run([sys.executable, "-c", INDUCTOR], capture_output=True, text=True, check=False)
    _print("compare.compiled_is_finite", int(done.stdout or 0), "of 1")
    sys.stderr.write(done.stderr)


def _complain(recipes: list[Recipe] | tuple[Recipe, ...], report: Report) -> None:
    sys.stderr.write(f"{' / '.join(recipe.key for recipe in recipes)}\n  {report.sentence}\n")
    for numerics in report.numerics[1:]:
        apart = [f"{each.layer} {each.what} {each.first_step}" for each in numerics.layers if each.what]
        sys.stderr.write(f"  layers: {', '.join(apart) or 'none'}\n")


def _print(name: str, value: int, unit: str) -> None:
    print(name, value, unit, flush=True)


if __name__ == "__main__":
    keep()
    sys.exit(main())
