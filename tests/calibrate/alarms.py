"""The presets on many trainings: alarms of healthy ones, which are false, and what is said of bad ones.

    python -m tests.calibrate.alarms [--share SHARE] [--folder FOLDER] [--only COURSE ...]

prints `name value unit` lines, and what went wrong on standard error; ends with 1 where anything did. The long form of
tests/server/alerts/test_presets.py; half an hour on two processors. What the server's clock decides (silence, a stall,
ranks that wait) is not in recordings, and not judged here. Invariant: every preset looks at every training.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from halfscope_server.alerts.presets import presets
from halfscope_server.alerts.types import Update
from halfscope_server.store.types import EpisodeRow, RunRow

from tests.calibrate.healthy import COURSES
from tests.helpers import compared_trainings
from tests.helpers.compared_trainings import TROUBLE_STEP, Recipe
from tests.helpers.comparing import Recordings
from tests.helpers.journals import as_updates, payloads
from tests.helpers.keeper import keep
from tests.helpers.once import made_once
from tests.helpers.preloaded import Preloaded
from tests.helpers.records import Records, Row, evaluate, run_row
from tests.helpers.trainings import Training

RULES = [preset.rule for preset in presets()]
SCRIPT = Path(__file__).with_name("healthy.py")
NUM_SEEDS = 3
SHORT, LONG = 3_000, 20_000
"""Steps."""
PRECISIONS = ("FP32", "FP16", "BF16")
LONGEST_S = 3_600.0
"""That one training may take, on a machine that does other things as well."""
DRAWN_SEEDS = 10
EVERY = compared_trainings.Recipe().every


@dataclass(frozen=True, slots=True, kw_only=True)
class Bad:
    """A training in which something is wrong from a step on, and what is to be said of it."""

    recipe: Recipe
    says: dict[str, tuple[int, int]]
    """Rule to the first and last step at which it may fire first."""
    may_say: tuple[str, ...] = ()
    """What comes of it as well."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.calibrate.alarms")
    parser.add_argument("--share", type=float, default=1.0, help="of the steps and seeds, for a quick look")
    parser.add_argument("--folder", type=Path, help="keep the trainings here, and use those that are there")
    parser.add_argument("--only", nargs="*", choices=[*COURSES, "drawn", "bad"], help="of the courses, some")
    given = parser.parse_args()
    chosen = given.only or [*COURSES, "drawn", "bad"]
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="halfscope-alarms-") as kept, Preloaded() as python:
        folder = given.folder or Path(kept)
        for course in (name for name in COURSES if name in chosen):
            wrong += _healthy(course, folder, python, given.share)
        if "drawn" in chosen:
            wrong += _drawn(given.share)
        if "bad" in chosen:
            wrong += _bad(folder, python)
    return int(wrong > 0)


def _healthy(course: str, folder: Path, python: Preloaded, share: float) -> int:
    """False alarms of one course, in every precision."""
    false = total = 0
    for precision in PRECISIONS:
        for seed in range(max(1, round(NUM_SEEDS * share))):
            is_long = course in ("usual", "gan") and precision == "FP16" and seed == 0
            steps = max(800, round((LONG if is_long else SHORT) * share))
            name = f"healthy-{course}-{precision}-{seed}-{steps}"
            arguments = [str(SCRIPT), str(folder / name), course, precision, str(seed), str(steps)]
            where = made_once(folder, name, lambda home, arguments=arguments: _train(python, arguments, home))  # type: ignore[misc]
            run, groups = recorded(where)
            found = evaluate(groups, RULES, run=run)
            false, total = false + bool(found), total + 1
            _complain(name, found)
    _print(f"alerts.{course}.false_alarms", false, f"of {total}")
    return false


def _train(python: Preloaded, arguments: list[str], home: Path) -> None:
    home.mkdir(parents=True)
    environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[2])}
    done = python.run(arguments, env=environment, cwd=home, strict=False, timeout_s=LONGEST_S)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with {done.returncode}: {done.stderr}")


def recorded(folder: Path) -> tuple[RunRow, list[list[Update]]]:
    """Every start of a training that lies in a folder, in the order in which they came."""
    run, groups = run_row(), []
    for attempt, records in enumerate(payloads(folder)):
        run, updates = as_updates(records)
        groups += [[_of_attempt(update, attempt)] for update in updates]
    return run, groups


def _of_attempt(update: Update, attempt: int) -> Update:
    stream = f"{attempt:08x}"
    events = [replace(event, attempt=attempt, stream=stream) for event in update.events]
    return replace(update, attempt=attempt, stream=stream, events=events)


def _drawn(share: float) -> int:
    """Trainings whose numbers are drawn: many seeds, very many steps, many ranks."""
    false = total = 0
    seeds = range(max(1, round(DRAWN_SEEDS * share)))
    kinds: dict[str, list[Training]] = {
        "drawn_fp16": [Training(init_scale=2.0**20, seed=seed, num_steps=LONG) for seed in seeds],
        "drawn_bf16": [Training(precision="BF16-AMP", seed=seed, num_steps=LONG) for seed in seeds],
        "drawn_fp32": [Training(precision="FP32", seed=seed, num_steps=LONG) for seed in seeds],
        "drawn_gan": [Training(optimizers=("d", "g"), seed=seed, num_steps=LONG) for seed in seeds],
        "drawn_long": [Training(init_scale=2.0**20, seed=99, num_steps=round(200_000 * share))],
    }
    for name, trainings in kinds.items():
        alarms = 0
        for training in trainings:
            records = training.records()
            run = run_row(facts={"precision": training.precision})
            found = evaluate(_cut([records]), RULES, run=run)
            alarms += bool(found)
            _complain(f"{name} seed {training.seed}", found)
        _print(f"alerts.{name}.false_alarms", alarms, f"of {len(trainings)}")
        false, total = false + alarms, total + len(trainings)
    # Ranks train on data of their own: scale, skips and gradients are one, losses and paces are not.
    first = Training(init_scale=2.0**20, seed=5, num_steps=4_000).records()
    ranks = [replace(first, rank=rank, rows=list(_of_rank(first, rank))) for rank in range(16)]
    found = evaluate(_cut(ranks), RULES, run=run_row(facts={"precision": "FP16-AMP"}, world_size=16))
    _complain("drawn_ranks", found)
    _print("alerts.drawn_ranks.false_alarms", int(bool(found)), "of 1")
    return false + bool(found)


def _of_rank(records: Records, rank: int) -> Iterator[Row]:
    for row in records.rows:
        values = dict(row.values)
        values["loss", ()] *= 1 + 0.1 * ((row.step * 7 + rank * 13) % 11 - 5) / 5
        later_us = (row.step * 31 + rank * 17) % 900
        yield replace(row, values=values, time_us=row.time_us + later_us, frames=row.frames if rank == 0 else [])


def _cut(streams: Sequence[Records], length: int = 500) -> Iterator[list[Update]]:
    for at in range(0, len(streams[0].rows), length):
        yield [records.update(at, at + length) for records in streams]


def _bad_trainings() -> Iterator[Bad]:
    at, soon = TROUBLE_STEP, TROUBLE_STEP + EVERY
    for seed in range(NUM_SEEDS):
        half = Recipe(precision="FP16", seed=seed)
        outliers = compared_trainings.NUM_OUTLIERS
        yield Bad(
            recipe=replace(half, held_scale=2.0**-5),
            says={"underflow": (at, soon), "scale-below-one": (at - 1, at)},
            may_say=("scale-collapsing",),
        )
        yield Bad(
            recipe=replace(half, num_outliers=outliers),
            says={
                "nonfinite-caught": (at + 2, at + 2),
                "scale-collapsing": (at + 3, at + 3),
                "skip-streak": (at + 7, at + 7),
                "scale-below-one": (at + 16, at + 16),
                "input-out-of-range": (at, soon),
            },
            may_say=("underflow", "loss-nonfinite", "grad-norm-vanished"),
        )
        yield Bad(
            recipe=replace(half, precision="FP16-unscaled", num_outliers=outliers),
            says={"nonfinite-applied": (at, at), "input-out-of-range": (at, soon)},
            may_say=("loss-nonfinite",),
        )
        yield Bad(
            recipe=Recipe(precision="BF16", seed=seed, learning_rate=compared_trainings.SMALL_STEPS),
            says={"updates-lost": (0, 4 * EVERY)},
        )


def _bad(folder: Path, python: Preloaded) -> int:
    """How many bad trainings are told with the right rules, at the right step, and with nothing else."""
    wrong = total = 0
    recordings = Recordings(folder / "recordings", None, python)  # type: ignore[arg-type]  # only journals are asked for
    for bad in _bad_trainings():
        run, groups = recorded(recordings.journal(bad.recipe))
        found = evaluate(groups, RULES, run=run)
        first: dict[str, int] = {}
        for episode in sorted(found, key=lambda e: e.fired_step or 0):
            first.setdefault(episode.rule_id, episode.fired_step or 0)
        is_right = all(low <= first.get(rule, -1) <= high for rule, (low, high) in bad.says.items())
        is_right &= first.keys() <= {*bad.says, *bad.may_say}
        if not is_right:
            sys.stderr.write(f"{bad.recipe.key}: {bad.says} was expected\n")
            _complain(bad.recipe.key, found)
        wrong, total = wrong + (not is_right), total + 1
    _print("alerts.bad.told", total - wrong, f"of {total}")
    return wrong


def _complain(name: str, found: Sequence[EpisodeRow]) -> None:
    for episode in found:
        sys.stderr.write(
            f"{name}: {episode.rule_id} fired at step {episode.fired_step}, {episode.resolution or 'goes on'}"
            f" at {episode.resolved_step}; worst {episode.worst:.4g} {episode.layer}\n"
        )


def _print(name: str, value: int, unit: str) -> None:
    print(name, value, unit, flush=True)


if __name__ == "__main__":
    keep()
    sys.exit(main())
