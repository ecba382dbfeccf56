"""The cost of looking at reductions: a small GPT on two ranks of gloo, one watched and one not, turn about.

A communication hook cannot be taken off a model again, so each rank has two copies of the training, whose turns follow
each other in the same order on both ranks. A round is unwatched, watched, unwatched: what drifts evenly cancels within
it, and the last turn against the first is the noise.
Invariant: a turn holds whole intervals between two sketches; `ratio_error` is the standard error of the mean over
rounds.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import halfscope
import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from tests.bench import workloads
from tests.bench.report import Bench, Measurement, middle, middle_error, say

NUM_RANKS = 2
BUDGET_S = 150.0
MIN_ROUNDS, MAX_ROUNDS = 6, 60
SETTLED_AFTER_STEPS = 30
PREFIX = "ddp.gpt2ranks"


def _training() -> tuple[torch.nn.Module, torch.optim.Optimizer, Callable[[], torch.Tensor]]:
    torch.manual_seed(0)
    net = workloads.Gpt(num_layers=6, width=256, num_heads=8, num_tokens=128, vocabulary=2048)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    text_BT = torch.randint(0, 2048, (4, 129), generator=torch.Generator().manual_seed(dist.get_rank()))

    def update() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        logits_BTV = model(text_BT[:, :-1])
        loss = functional.cross_entropy(logits_BTV.flatten(0, 1), text_BT[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss

    return model, optimizer, update


def _rank(rank: int, folder: str, quick: bool, results: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=NUM_RANKS)
    _, _, unwatched = _training()
    model, optimizer, update = _training()
    run = halfscope.watch(model, optimizer, mode="offline", directory=Path(folder, "journals"), name="bench")

    def watched() -> torch.Tensor:
        loss = update()
        run.step(loss=loss)
        return loss

    group = dist.group.WORLD
    assert group is not None
    assert run._watcher is not None
    began_s = time.perf_counter()
    for _ in range(2 if quick else SETTLED_AFTER_STEPS):
        watched()
        unwatched()
    num_settled = 4 if quick else 2 * SETTLED_AFTER_STEPS
    step_s = (time.perf_counter() - began_s) / num_settled
    # Ranks must agree in how often they turn: the first one says.
    plan = [run._watcher.sketches.interval.value, max(MIN_ROUNDS, int(BUDGET_S / (step_s * 30)))]
    dist.broadcast_object_list(plan, src=0)
    num_steps = 2 if quick else plan[0]
    counts = {before: _counted(group, each) for before, each in (("unwatched", unwatched), ("watched", watched))}
    turns: dict[str, list[tuple[float, float]]] = {"unwatched": [], "watched": [], "again": []}
    for _ in range(2 if quick else min(plan[1], MAX_ROUNDS)):
        for name, each in (("unwatched", unwatched), ("watched", watched), ("again", unwatched)):
            turns[name].append(_turn(each, num_steps))
    run.finish()
    if rank == 0:
        results.put((turns, counts))
    dist.destroy_process_group()


def _turn(update: Callable[[], torch.Tensor], num_steps: int) -> tuple[float, float]:
    """Wall time of a step, and processor time of the training thread: without what gloo burns while it waits."""
    dist.barrier()
    cpu_s, wall_s = time.thread_time(), time.perf_counter()
    for _ in range(num_steps):
        update()
    return (time.perf_counter() - wall_s) / num_steps, (time.thread_time() - cpu_s) / num_steps


def _counted(group: Any, update: Callable[[], torch.Tensor]) -> int:
    before: int = group._get_sequence_number_for_group()
    update()
    after: int = group._get_sequence_number_for_group()
    return after - before


def _measure(quick: bool) -> Iterator[Measurement]:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with tempfile.TemporaryDirectory(prefix="halfscope-bench-") as folder:
        ranks = [context.Process(target=_rank, args=(rank, folder, quick, results)) for rank in range(NUM_RANKS)]
        say(f"{PREFIX}: {NUM_RANKS} ranks, about {BUDGET_S:.0f} s")
        for each in ranks:
            each.start()
        turns, counts = results.get(timeout=900)
        for each in ranks:
            each.join()
    first, again = turns["unwatched"], turns["again"]
    step_ms = statistics.median(wall_s for wall_s, _ in first) * 1e3
    yield Measurement(name=f"{PREFIX}.step_ms", value=step_ms, unit="ms")
    for clock, what in enumerate(("ratio", "cpu_ratio")):
        early, late, watched = ([turn[clock] for turn in found] for found in (first, again, turns["watched"]))
        around = [(one + other) / 2 for one, other in zip(early, late, strict=True)]
        for label, of, base in (("", watched, around), ("again.", late, early)):
            ratios = [one / other for one, other in zip(of, base, strict=True)]
            yield Measurement(name=f"{PREFIX}.{label}{what}", value=middle(ratios), unit="ratio")
            yield Measurement(name=f"{PREFIX}.{label}{what}_error", value=middle_error(ratios), unit="ratio")
    added = float(counts["watched"] - counts["unwatched"])
    yield Measurement(name=f"{PREFIX}.collectives_added", value=added, unit="collectives")


LABELS = (
    "step_ms",
    *(f"{label}{what}{end}" for what in ("ratio", "cpu_ratio") for label in ("", "again.") for end in ("", "_error")),
    "collectives_added",
)
BENCHES = [Bench(names=[f"{PREFIX}.{label}" for label in LABELS], run=_measure)]
