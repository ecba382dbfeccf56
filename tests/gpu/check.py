"""`python tests/gpu/check.py`: what only a CUDA device can show, in under four minutes.

1. Truth: 200 steps of FP16 autocast with overflows put in, on an unfused and a fused optimizer, clipped and not. Scale,
   next scale, skips, applied steps, gradient norms and sketches in the journal equal an independent reading taken
   beside them, and the weights are bit for bit those of an unwatched twin.
2. Syncs: a watched step waits for the device no more often than an unwatched one, counted by PyTorch's own sync debug
   mode; and where the unwatched step never waits, neither does the watched one, with that mode set to raise.
3. Kernels: sketches and norms of gradients of every type and layout, count for count what NumPy finds.
4. Graphs: 50 captures and replays of a watched step leave the weights bit for bit what they are unwatched.
5. Cost: watched against unwatched steps of a transformer that keeps the host busy, in turns: without sketches, as by
   default, and sketched at every step; and with parts taken out (nothing from the device, no norms, no journal), to
   tell what takes what. The same of a larger one that keeps the device busy. Then what norms and frames take on the
   device and on the host, and other ways to cut the work.

Prints `name value unit` lines as it goes, and exits with 0 when 1 to 4 hold; a part that raises is told of, and the
next one runs. `--parts` names some of them. `--device cpu` runs the truth alone, to try the script.
Invariant: what is compared with halfscope's numbers never goes through halfscope's code.
"""

from __future__ import annotations

import argparse
import gc
import math
import resource
import statistics
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import nn

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "agent"), str(ROOT)]  # a machine that is lent for minutes need not install anything

import halfscope  # noqa: E402
from halfscope.record.layout import StreamPlace  # noqa: E402
from halfscope.record.reader import JournalReader  # noqa: E402
from halfscope.wire.codec import decode_record  # noqa: E402
from halfscope.wire.messages import Declare, Event, Layers, Points, Record, Sketches  # noqa: E402

from tests.gpu import kernels as kernel_checks  # noqa: E402

NUM_STEPS = 200
OVERFLOW_EVERY = 17
SKETCH_EVERY = 50
"""The default interval of sketches on a device; a turn of the cost measurement holds one of them."""
NORM_TOLERANCE = 1e-5
"""Relative: halfscope adds up in another order than the reading here."""


Bins = dict[int | str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One way to train."""

    device: str
    fused: bool
    clipped: bool

    @property
    def name(self) -> str:
        return f"{'fused' if self.fused else 'unfused'}.{'clipped' if self.clipped else 'plain'}"


@dataclass(slots=True)
class Training:
    """A small network with all that a step needs."""

    case: Case
    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    batches: torch.Tensor


@dataclass(slots=True)
class Reading:
    """What was read beside the training, step by step."""

    scale: list[float] = field(default_factory=list)
    scale_next: list[float] = field(default_factory=list)
    growth_tracker: list[float] = field(default_factory=list)
    skipped: list[bool] = field(default_factory=list)
    norm: list[float] = field(default_factory=list)
    bins: list[dict[str, Bins]] = field(default_factory=list)
    """Of every layer: elements by exponent, under "zero" and "nonfinite" those that have none."""


def make(case: Case) -> Training:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 16)).to(
        case.device
    )
    return Training(
        case=case,
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3, fused=case.fused),
        scaler=torch.amp.GradScaler(case.device, init_scale=2.0**14, growth_interval=20),
        batches=torch.randn(8, 32, 64, device=case.device),
    )


def forward_and_backward(training: Training, step: int) -> torch.Tensor:
    """One backward pass; now and then of a loss so large that gradients overflow in FP16 while it is finite itself."""
    training.optimizer.zero_grad(set_to_none=True)
    with torch.autocast(training.case.device, dtype=torch.float16):
        loss = training.model(training.batches[step % 8]).float().square().mean()
    if step % OVERFLOW_EVERY == OVERFLOW_EVERY - 1:
        loss = loss * 1e6
    training.scaler.scale(loss).backward()
    return loss.detach()


def update(training: Training) -> None:
    if training.case.clipped:
        training.scaler.unscale_(training.optimizer)
        nn.utils.clip_grad_norm_(training.model.parameters(), 1.0)
    training.scaler.step(training.optimizer)
    training.scaler.update()


# ---- 1. truth --------------------------------------------------------------------------------


def check_truth(case: Case) -> list[str]:
    """What is wrong; nothing when all is as it should be."""
    twin = make(case)
    for step in range(NUM_STEPS):
        forward_and_backward(twin, step)
        update(twin)
    with tempfile.TemporaryDirectory() as folder:
        training, reading = make(case), Reading()
        run = halfscope.watch(training.model, training.optimizer, training.scaler, mode="offline", directory=folder)
        for step in range(NUM_STEPS):
            loss = forward_and_backward(training, step)
            read_before_update(training, reading)
            update(training)
            reading.scale_next.append(float(training.scaler._scale))  # type: ignore[arg-type]  # a tensor by now
            reading.growth_tracker.append(float(training.scaler._get_growth_tracker()))
            run.step(loss=loss)
        run.finish()
        records = journal(Path(folder))
    problems = compare(reading, records) + compare_sketches(reading, records)
    for (name, mine), other in zip(training.model.named_parameters(), twin.model.parameters(), strict=True):
        if not torch.equal(mine, other):
            problems.append(f"{name} differs from the unwatched training")
    return problems


def read_before_update(training: Training, reading: Reading) -> None:
    """Scale, whether the step must be skipped, and the norm, from the scaled gradients themselves, in float64."""
    scale = float(training.scaler._scale)  # type: ignore[arg-type]  # a tensor after the first `scale`
    grads = [p.grad.double() for p in training.model.parameters() if p.grad is not None]
    reading.scale.append(scale)
    reading.skipped.append(not all(bool(grad.isfinite().all()) for grad in grads))
    reading.bins.append(
        {name: bins_of((p.grad.double() / scale).cpu().numpy()) for name, p in training.model.named_parameters()}  # type: ignore[union-attr]
    )
    reading.norm.append(math.sqrt(sum(float(grad.square().sum()) for grad in grads)) / scale)


def bins_of(values: np.ndarray) -> Bins:
    """By NumPy's frexp, in float64."""
    finite = values[np.isfinite(values)]
    exponents = np.frexp(finite[finite != 0])[1] - 1
    found: Bins = {int(at): int(count) for at, count in zip(*np.unique(exponents, return_counts=True), strict=True)}
    found["zero"] = int(np.count_nonzero(finite == 0))
    found["nonfinite"] = values.size - finite.size
    return found


def recorded_bins(records: Sequence[Record]) -> dict[int, dict[str, Bins]]:
    """Step to layer to what its sketch holds, read from the record's own bytes."""
    names = {each.lid: each.name for record in records if isinstance(record, Layers) for each in record.layers}
    found: dict[int, dict[str, Bins]] = {}
    for record in records:
        if not isinstance(record, Sketches) or record.of != "grad":
            continue
        counts = np.frombuffer(record.counts, "<i8").reshape(-1, 5)
        lowest, sizes = np.frombuffer(record.lowest, "<i2"), np.frombuffer(record.num_bins, "<u2")
        bins = np.split(np.frombuffer(record.bins, f"<u{record.width}"), np.cumsum(sizes)[:-1].astype(int))
        for at, lid in enumerate(np.frombuffer(record.lids, "<u4").tolist()):
            layer: Bins = {int(lowest[at]) + k: int(count) for k, count in enumerate(bins[at]) if count}
            layer |= {"zero": int(counts[at, 1]), "nonfinite": int(counts[at, 2:].sum())}
            found.setdefault(record.step, {})[names[lid]] = layer
    return found


def compare_sketches(reading: Reading, records: Sequence[Record]) -> list[str]:
    found = recorded_bins(records)
    problems = [] if len(found) >= 4 else [f"only {len(found)} sketched steps"]
    for step, layers in found.items():
        wrong = [name for name, expected in reading.bins[step].items() if layers.get(name) != expected]
        if wrong:
            problems.append(f"sketches at step {step}: {len(wrong)} layers differ, first {wrong[0]}")
    return problems


def compare(reading: Reading, records: Sequence[Record]) -> list[str]:
    problems = [f"halfscope itself failed: {each.attributes}" for each in of_kind(records, "agent_degraded")]
    if not 3 <= sum(reading.skipped) <= NUM_STEPS // 2:
        problems.append(f"{sum(reading.skipped)} skips were read; the check needs some of both")
    expected: dict[str, list[float]] = {
        "amp.scale": reading.scale,
        "amp.scale_next": reading.scale_next,
        "amp.growth_tracker": reading.growth_tracker,
        "amp.skipped": [float(skipped) for skipped in reading.skipped],
        "opt.steps": np.cumsum([not skipped for skipped in reading.skipped]).astype(float).tolist(),
    }
    for name, values in expected.items():
        recorded = series(records, name)
        wrong = [step for step, value in enumerate(values) if recorded.get(step) != value]
        if wrong:
            at = wrong[0]
            problems.append(f"{name}: {len(wrong)} steps differ, first {at}: {recorded.get(at)} for {values[at]}")
    recorded = series(records, "grad.norm")
    for step, (norm, skipped) in enumerate(zip(reading.norm, reading.skipped, strict=True)):
        value = recorded.get(step)
        good = value is not None and (not math.isfinite(value) if skipped else abs(value / norm - 1) < NORM_TOLERANCE)
        if not good:
            problems.append(f"grad.norm at step {step}: {value} for {norm}{' (skipped)' if skipped else ''}")
            break
    return problems


def journal(directory: Path) -> list[Record]:
    (stream,) = directory.glob("*/*")
    reader = JournalReader(StreamPlace(directory=directory, run_id=stream.parent.name, stream=stream.name))
    try:
        return [decode_record(entry.payload) for entry in reader.read(final=True)]
    finally:
        reader.close()


def of_kind(records: Sequence[Record], kind: str) -> list[Event]:
    return [record for record in records if isinstance(record, Event) and record.kind == kind]


def series(records: Sequence[Record], name: str) -> dict[int, float]:
    """Step to value; what holds until it changes is carried on."""
    sids = {
        each.sid for record in records if isinstance(record, Declare) for each in record.series if each.name == name
    }
    found: dict[int, float] = {}
    for record in records:
        if isinstance(record, Points):
            steps = np.frombuffer(record.steps, "<i8")
            for column in record.columns:
                if column.sid in sids:
                    rows = np.frombuffer(column.rows, "<u4") if column.rows else np.arange(steps.size)
                    found |= dict(zip(steps[rows].tolist(), np.frombuffer(column.values, "<f8").tolist(), strict=True))
    return found


# ---- 2. syncs --------------------------------------------------------------------------------


def check_syncs(case: Case) -> tuple[int, int, list[str]]:
    """(syncs unwatched, syncs watched, what is wrong) over 50 steps."""
    count_syncs(make(case), None)  # what a process waits for only once
    unwatched = count_syncs(make(case), None)
    with tempfile.TemporaryDirectory() as folder:
        training = make(case)
        run = halfscope.watch(training.model, training.optimizer, training.scaler, mode="offline", directory=folder)
        watched = count_syncs(training, run)
        if unwatched == 0:
            with sync_debug_mode("error"):
                steps(training, run, 50)
        run.finish()
        failures = of_kind(journal(Path(folder)), "agent_degraded")
    problems = [f"halfscope itself failed: {each.attributes}" for each in failures]
    if watched > unwatched:
        problems.append(f"{watched} syncs watched, {unwatched} unwatched")
    return unwatched, watched, problems


def count_syncs(training: Training, run: halfscope.Run | None) -> int:
    steps(training, run, 10)
    torch.cuda.synchronize()
    with warnings.catch_warnings(record=True) as caught, sync_debug_mode("warn"):
        warnings.simplefilter("always")
        steps(training, run, 50)
    return sum("synchroniz" in str(each.message) for each in caught)


def steps(training: Training, run: halfscope.Run | None, num_steps: int) -> None:
    for step in range(num_steps):
        loss = forward_and_backward(training, step)
        update(training)
        if run is not None:
            run.step(loss=loss, samples=32)


@contextmanager
def sync_debug_mode(mode: str) -> Iterator[None]:
    torch.cuda.set_sync_debug_mode(mode)
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


# ---- 4. graphs -------------------------------------------------------------------------------


def check_graphs(num_captures: int = 50) -> list[str]:
    """What is wrong with a watched step that is captured and replayed, again and again."""
    plain = captured_training(num_captures, watched=False)
    with_us = captured_training(num_captures, watched=True)
    problems = list(with_us[1])
    if not all(torch.equal(mine, other) for mine, other in zip(with_us[0], plain[0], strict=True)):
        problems.append("weights differ from those of the unwatched training")
    return problems


def captured_training(num_captures: int, *, watched: bool) -> tuple[list[torch.Tensor], list[str]]:
    """Weights after the training, and what halfscope says went wrong."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 16)).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
    batch = torch.randn(32, 64, device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(batch).square().mean().backward()
        optimizer.step()

    with tempfile.TemporaryDirectory() as folder:
        run = halfscope.watch(model, optimizer, mode="offline", directory=folder, every=1) if watched else None
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        for _ in range(num_captures):
            with torch.cuda.stream(side):
                step()
                step()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
            graph.replay()
            graph.replay()
            torch.cuda.synchronize()
        failures = []
        if run is not None:
            run.finish()
            failures = [str(each.attributes) for each in of_kind(journal(Path(folder)), "agent_degraded")]
    return [parameter.detach().clone() for parameter in model.parameters()], failures


# ---- 5. cost ---------------------------------------------------------------------------------

NEVER = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One way to watch a copy of the model."""

    every: int | None = NEVER
    """Interval of sketches; None: the default."""
    without: Callable[[halfscope.Run], None] | None = None
    """Takes a part out of a run that has just begun, to see what that part costs."""


def without_device(run: halfscope.Run) -> None:
    """Hooks, events and rows alone: nothing is fetched from the device."""
    rings = run._watcher.rings  # type: ignore[union-attr]
    rings._make = lambda device, width: None
    rings._rings.clear()
    without_norms(run)


def without_norms(run: halfscope.Run) -> None:
    run._watcher._read = lambda *arguments: None  # type: ignore[union-attr]


def without_journal(run: halfscope.Run) -> None:
    run._recorder.row = lambda *arguments: None  # type: ignore[union-attr, method-assign]


MIDDLE = {
    "hooks_only": Arm(without=without_device),
    "without_norms": Arm(without=without_norms),
    "without_journal": Arm(without=without_journal),
    "norm_only": Arm(),
    "offline": Arm(every=None),
    "every_step": Arm(every=1),
}
LARGE = {"norm_only": Arm(), "offline": Arm(every=None), "every_step": Arm(every=1)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What some steps took, each in the mean; seconds."""

    wall: float
    thread: float
    """Processor time of the thread that trains."""
    process: float
    switches: float
    """How often that thread was taken off its processor, because it waited or another was to run."""
    collections: float
    """Of Python's garbage."""
    segments: float
    """Of device memory, newly taken."""


Step = Callable[[], torch.Tensor]
Made = tuple[nn.Module, torch.optim.Optimizer, torch.amp.GradScaler, Step]


def measure_cost(
    prefix: str, make_step: Callable[[], Made], arms: dict[str, Arm], rounds: int, turn_steps: int
) -> Iterator[tuple[str, float, str]]:
    """Milliseconds of an unwatched step; ratios of a second unwatched copy and of watched ones; and what watching takes
    of a step on the host: of the training thread, of the process, and by halfscope's own clock."""
    with tempfile.TemporaryDirectory() as folder:
        calls: dict[str, Callable[[], object]] = {name: make_step()[3] for name in ("unwatched", "again")}
        runs = {}
        for name, arm in arms.items():
            model, optimizer, scaler, step = make_step()
            began = time.perf_counter()
            runs[name] = halfscope.watch(model, optimizer, scaler, mode="offline", directory=folder, every=arm.every)
            yield f"{prefix}.{name}.watch_s", time.perf_counter() - began, "s"
            if arm.without is not None:
                arm.without(runs[name])
            calls[name] = watched(runs[name], step)
        if why := runs["norm_only"]._watcher.rings.stock_because:  # type: ignore[union-attr]
            print(f"# stock operations: {why}", flush=True)
        turns: dict[str, list[Turn]] = {name: [] for name in calls}
        for call in calls.values():
            turn(call, 5)
        own = {name: own_ns(run) for name, run in runs.items()}
        for number in range(rounds):
            for name in calls if number % 2 == 0 else reversed(calls):
                turns[name].append(turn(calls[name], turn_steps))
        for name, run in runs.items():
            yield f"{prefix}.{name}.own_us", (own_ns(run) - own[name]) / (rounds * turn_steps) / 1e3, "us"
            for probe, failures in run._guard.failures.items():  # type: ignore[union-attr]
                print(f"# {prefix}.{name}: {probe} failed {failures} times", flush=True)
            run.finish()
    base = turns["unwatched"]
    yield f"{prefix}.unwatched.step_ms", statistics.median(each.wall for each in base) * 1e3, "ms"
    yield f"{prefix}.unwatched.thread_ms", statistics.median(each.thread for each in base) * 1e3, "ms"
    for name in ("again", *arms):
        pairs = list(zip(turns[name], base, strict=True))
        yield f"{prefix}.{name}.ratio", statistics.median(mine.wall / other.wall for mine, other in pairs), "ratio"
        for kind in ("wall", "thread", "process"):
            extra = statistics.median(getattr(mine, kind) - getattr(other, kind) for mine, other in pairs)
            yield f"{prefix}.{name}.{kind}_us", extra * 1e6, "us"
        for kind in ("switches", "collections", "segments"):
            extra = statistics.mean(getattr(mine, kind) - getattr(other, kind) for mine, other in pairs)
            yield f"{prefix}.{name}.{kind}", extra, "1/step"


def own_ns(run: halfscope.Run) -> int:
    return run._watcher.own_ns  # type: ignore[union-attr]


def watched(run: halfscope.Run, step: Step) -> Callable[[], object]:
    def update() -> None:
        run.step(loss=step(), samples=8)

    return update


def turn(call: Callable[[], object], num_steps: int) -> Turn:
    """Some steps, and the device's end of them."""
    torch.cuda.synchronize()
    before, began = counts(), (time.perf_counter(), time.thread_time(), time.process_time())
    for _ in range(num_steps):
        call()
    thread, process, after = time.thread_time(), time.process_time(), counts()
    torch.cuda.synchronize()
    wall = time.perf_counter()
    switches, collections, segments = ((now - then) / num_steps for now, then in zip(after, before, strict=True))
    return Turn(
        wall=(wall - began[0]) / num_steps, thread=(thread - began[1]) / num_steps,
        process=(process - began[2]) / num_steps, switches=switches, collections=collections, segments=segments,
    )  # fmt: skip


def counts() -> tuple[int, int, int]:
    """Of this thread the times it was switched away from; collections; segments of device memory."""
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    collections = sum(generation["collections"] for generation in gc.get_stats())
    segments = torch.cuda.memory_stats().get("segment.all.allocated", 0)
    return usage.ru_nvcsw + usage.ru_nivcsw, collections, segments


def transformer_step(width: int = 1024, num_layers: int = 8) -> Made:
    """100 million parameters: 8 layers of width 1,024, 512 tokens, batch 8, FP16 autocast, fused AdamW. A step takes
    the host longer than the device, so each microsecond of ours shows."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        width, 16, 4 * width, dropout=0.0, batch_first=True, norm_first=True, device="cuda"
    )
    model = nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    scaler = torch.amp.GradScaler("cuda")
    batch = torch.randn(8, 512, width, device="cuda")

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(batch).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return model, optimizer, scaler, step


def large_step() -> Made:
    """600 million parameters in 12 layers of width 2,048: a step takes the device longer than the host, as it does in
    the trainings that devices are bought for."""
    return transformer_step(2048, 12)


# ---- all -------------------------------------------------------------------------------------


def run_truth(options: argparse.Namespace) -> bool:
    good = True
    for case in cases(options.device):
        good &= report(f"gpu.truth.{case.name}.problems", check_truth(case))
    return good


def run_syncs(options: argparse.Namespace) -> bool:
    good = True
    for case in cases(options.device):
        unwatched, watched, problems = check_syncs(case)
        tell(f"gpu.syncs.{case.name}.unwatched", unwatched, "syncs/50steps")
        tell(f"gpu.syncs.{case.name}.watched", watched, "syncs/50steps")
        good &= report(f"gpu.syncs.{case.name}.problems", problems)
    return good


def run_kernels(options: argparse.Namespace) -> bool:
    device = torch.device("cuda", 0)
    began = time.perf_counter()
    kernels = kernel_checks.prepared(device)
    tell("gpu.kernels.prepare_s", time.perf_counter() - began, "s")
    good = True
    for name, problems in kernel_checks.check_exactness(device, kernels):
        good &= report(f"gpu.kernels.{name}.problems", problems)
    return good


def run_graphs(options: argparse.Namespace) -> bool:
    return report("gpu.graphs.problems", check_graphs())


def run_cost(options: argparse.Namespace) -> bool:
    for line in measure_cost("gpu.transformer", transformer_step, MIDDLE, options.rounds, turn_steps=SKETCH_EVERY):
        tell(*line)
    return True


def run_large(options: argparse.Namespace) -> bool:
    rounds = max(options.rounds // 2, 2)
    for line in measure_cost("gpu.large", large_step, LARGE, rounds, turn_steps=SKETCH_EVERY):
        tell(*line)
    return True


def run_speeds(options: argparse.Namespace) -> bool:
    device = torch.device("cuda", 0)
    shapes = [parameter.shape for parameter in transformer_step()[0].parameters()]
    for line in kernel_checks.measure_speeds(device, kernel_checks.prepared(device), shapes):
        tell(*line)
    return True


def run_variants(options: argparse.Namespace) -> bool:
    shapes = [parameter.shape for parameter in transformer_step()[0].parameters()]
    for line in kernel_checks.measure_variants(torch.device("cuda", 0), shapes):
        tell(*line)
    return True


PARTS: dict[str, Callable[[argparse.Namespace], bool]] = {
    "truth": run_truth, "kernels": run_kernels, "syncs": run_syncs, "graphs": run_graphs, "cost": run_cost,
    "large": run_large, "speeds": run_speeds, "variants": run_variants,
}  # fmt: skip


def cases(device: str) -> list[Case]:
    return [Case(device=device, fused=fused, clipped=clipped) for fused in (False, True) for clipped in (False, True)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 good, 1 something is wrong, 2 no CUDA device."""
    parser = argparse.ArgumentParser(description="Check halfscope's CUDA path.")
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="cpu: only the truth, to try the script"
    )
    parser.add_argument("--rounds", type=int, default=6, help="rounds of the cost measurement")
    parser.add_argument("--parts", nargs="+", choices=tuple(PARTS), default=list(PARTS), help="what to run")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        print(f"no CUDA device: torch {torch.__version__} sees none; run this on a machine with one", file=sys.stderr)
        return 2
    print(f"# torch {torch.__version__} · {torch.cuda.get_device_name() if options.device == 'cuda' else 'cpu'}")
    good = True
    for part in options.parts if options.device == "cuda" else ["truth"]:
        began = time.perf_counter()
        try:
            good &= PARTS[part](options)
        except Exception:
            good = False
            print(f"# {part} raised:\n{traceback.format_exc()}", flush=True)
        print(f"# {part}: {time.perf_counter() - began:.0f} s", flush=True)
        if options.device == "cuda":
            torch.cuda.empty_cache()
    return 0 if good else 1


def tell(name: str, value: float, unit: str) -> None:
    print(f"{name} {value:.6g} {unit}", flush=True)


def report(name: str, problems: Sequence[str]) -> bool:
    print(f"{name} {len(problems)} count", flush=True)
    for problem in problems:
        print(f"#   {problem}", flush=True)
    return not problems


if __name__ == "__main__":
    sys.exit(main())
