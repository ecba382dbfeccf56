"""The kernels on a real device: right to the last count, and how fast, one way of cutting the work against another.

Part of `check.py`, which runs it. Expected values come from NumPy alone: `frexp` in float64.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from halfscope.instrument.device import DeviceRing
from halfscope.kernels import fused as fused_module
from halfscope.kernels import rows as layout
from halfscope.kernels.events import ArrivalEvent
from halfscope.kernels.fused import FusedPass, Tuning
from halfscope.probes import gradients
from halfscope.probes.device_sketches import DeviceSketcher

Line = tuple[str, float, str]

SCALES = (None, 2.0**16, 2.0**-3, 3.0)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
DTYPES = (torch.float32, torch.float16, torch.bfloat16, *FLOAT8, torch.float64)
NORM_TOLERANCE = 1e-12


def examples(dtype: torch.dtype, large: int) -> list[torch.Tensor]:
    """Gradients of one type: every kind of value, every awkward layout, and one bin that float32 could not count."""
    generator = torch.Generator().manual_seed(1)

    def some(*shape: int) -> torch.Tensor:
        wide = torch.randn(shape, generator=generator, dtype=torch.float64)
        return (wide * 2.0 ** torch.randint(-45, 12, shape, generator=generator)).to(dtype)

    special = torch.tensor(
        [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, -1e-44, 1.1754e-38, 1e-40, 3.4e38, -3.4e38, 2.0**-14, 6e-8]
    )
    signals = torch.tensor([0x7F800001, 0x7FFFFFFF, -1], dtype=torch.int32).view(torch.float32)
    values = some(4_099)
    values[: special.numel()] = special.to(dtype)
    values[special.numel() : special.numel() + 3] = signals.to(dtype)
    whole = some(min(100_000, large))
    grid = some(300, 70).float().view(30, 10, 10, 7).to(memory_format=torch.channels_last).to(dtype)
    return [
        torch.empty(0, dtype=dtype), some(1), values, whole[1:], whole[3:5_000], some(150, 100).t(), grid,
        some(64, 33)[:, ::2], torch.zeros(5_000, dtype=dtype), torch.full((large,), 0.75, dtype=dtype),
    ]  # fmt: skip


def expected_bins(tensor: torch.Tensor, scale: float | None) -> dict[Any, Any]:
    """By NumPy's frexp, in float64."""
    values = tensor.double().cpu().numpy().ravel() / (1.0 if scale is None else scale)
    finite = values[np.isfinite(values)]
    nonzero = np.abs(finite[finite != 0])
    exponents, counts = np.unique(np.frexp(nonzero)[1] - 1, return_counts=True)
    found: dict[Any, Any] = {int(at): int(count) for at, count in zip(exponents, counts, strict=True)}
    found |= {
        "zeros": int((finite == 0).sum()), "nan": int(np.isnan(values).sum()),
        "pos_inf": int((values == math.inf).sum()), "neg_inf": int((values == -math.inf).sum()),
        "absmax": float(nonzero.max(initial=0.0)), "absmin_nonzero": float(nonzero.min(initial=math.inf)),
    }  # fmt: skip
    return found


def check_exactness(
    device: torch.device, kernels: FusedPass, large: int = (1 << 24) + 5
) -> Iterator[tuple[str, list[str]]]:
    """Name of a type, and what is wrong with its sketches and norms."""
    for dtype in DTYPES:
        on_host = examples(dtype, large)
        if dtype not in (torch.float32, torch.bfloat16):
            on_host[-1] = on_host[-1][:100_000]  # its count is no other thing in the other types
        # Moved as bytes and cut there: as the optimizer would see them, off the allocator's alignment.
        grads = [_moved(tensor, device) for tensor in on_host]
        yield (
            str(dtype).removeprefix("torch."),
            _sketch_problems(device, kernels, grads, on_host) + _norm_problems(kernels, grads, on_host),
        )


def _moved(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    base = tensor.untyped_storage()
    flat = torch.empty(0, dtype=tensor.dtype).set_(base).to(device)
    return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _sketch_problems(
    device: torch.device, kernels: FusedPass, grads: Sequence[torch.Tensor], on_host: Sequence[torch.Tensor]
) -> list[str]:
    has_double = grads[0].dtype is torch.float64
    sketcher = DeviceSketcher(
        device, [grad.numel() for grad in grads], has_double=has_double, fused=kernels, **_host_options(device)
    )
    problems = []
    for scale in SCALES:
        divide_by = None if scale is None else torch.full((), scale, device=device)
        flight = sketcher.capture(grads, range(len(grads)), divide_by)
        if flight is None:
            problems.append(f"scale {scale}: nothing was captured")
            continue
        flight.event.synchronize()
        measured = flight.read()
        flight.land()
        if list(measured.positions) != list(range(len(grads))):
            problems.append(f"scale {scale}: only {list(measured.positions)} of {len(grads)}")
            continue
        for at, tensor in enumerate(on_host):
            one = measured.sketches[at]
            found: dict[Any, Any] = {one.lowest + k: int(n) for k, n in enumerate(one.counts) if n}
            found |= {name: int(getattr(one, name)) for name in ("zeros", "nan", "pos_inf", "neg_inf")}
            found |= {name: float(getattr(one, name)) for name in ("absmax", "absmin_nonzero")}
            expected = expected_bins(tensor, scale)
            if found != expected:
                differ = {key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)}
                first = sorted(differ, key=str)[:3]
                problems.append(f"scale {scale}, tensor {at}: {[(k, found.get(k), expected.get(k)) for k in first]}")
    return problems


def _host_options(device: torch.device) -> dict[str, Any]:
    if device.type == "cuda":
        return {}
    return {"pinned": False, "make_event": _Done, "capturing": lambda: False}


class _Done:
    def query(self) -> bool:
        return True

    def synchronize(self) -> None: ...


def _norm_problems(kernels: FusedPass, grads: Sequence[torch.Tensor], on_host: Sequence[torch.Tensor]) -> list[str]:
    norms = gradients.capture(grads, kernels)
    if norms is None:
        return ["no norms"]
    problems = []
    for at, (norm, tensor) in enumerate(zip(norms.tolist(), on_host, strict=True)):
        values = tensor.double().cpu().numpy().ravel()
        expected = (
            math.sqrt(math.fsum((values * values).tolist())) if np.isfinite(values).all() else float(values.sum())
        )
        good = abs(norm - expected) <= NORM_TOLERANCE * expected if math.isfinite(expected) else not math.isfinite(norm)
        if not good:
            problems.append(f"norm of tensor {at}: {norm} for {expected}")
    return problems


# ---- speed -----------------------------------------------------------------------------------


def device_us(call: Callable[[], object], repeat: int = 20) -> float:
    """Microseconds on the device: the median of single calls between two events."""
    pairs = []
    for _ in range(3):
        call()
    for _ in range(repeat):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        call()
        end.record()
        pairs.append((begin, end))
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) * 1e3 for begin, end in pairs)


def host_us(call: Callable[[], object], repeat: int = 100) -> float:
    """Microseconds of this thread: the least of five means, the device idle before each."""
    for _ in range(5):
        call()
    best = math.inf
    for _ in range(5):
        torch.cuda.synchronize()
        started = time.thread_time()
        for _ in range(repeat):
            call()
        best = min(best, (time.thread_time() - started) / repeat)
    torch.cuda.synchronize()
    return best * 1e6


def measure_speeds(device: torch.device, kernels: FusedPass, shapes: Sequence[torch.Size]) -> Iterator[Line]:
    """Of gradients of some shapes: what norms and frames cost, on the device and on the host."""
    grads = [torch.randn(shape, device=device) * 1e-5 for shape in shapes]
    count = len(grads)
    scale = torch.full((), 65536.0, device=device)
    out = torch.empty(count, dtype=torch.float64, device=device)
    frame = torch.empty((count, layout.ROW_WIDTH), dtype=torch.int64, device=device)
    work = kernels.find(grads)
    assert work is not None
    stock = DeviceSketcher(device, [grad.numel() for grad in grads])
    fused = DeviceSketcher(device, [grad.numel() for grad in grads], fused=kernels)

    def captured(sketcher: DeviceSketcher) -> Callable[[], object]:
        def call() -> None:
            flight = sketcher.capture(grads, range(count), scale)
            assert flight is not None
            flight.land()

        return call

    total_bytes = sum(grad.numel() * grad.element_size() for grad in grads)
    buffer = torch.empty(total_bytes // 4, device=device)
    yield "gpu.kernels.read_floor.device_us", device_us(lambda: buffer.sum()), "us"
    yield "gpu.kernels.norms.device_us", device_us(lambda: kernels.norms(work, out)), "us"
    yield "gpu.kernels.frame.device_us", device_us(lambda: kernels.sketch(work, scale, frame)), "us"
    yield "gpu.kernels.frame_and_copy.device_us", device_us(captured(fused)), "us"
    yield "gpu.stock.norms_float64.device_us", device_us(lambda: gradients.capture(grads)), "us"
    yield "gpu.stock.norms_float32.device_us", device_us(lambda: torch._foreach_norm(grads, 2)), "us"
    yield "gpu.stock.norms_max.device_us", device_us(lambda: torch._foreach_norm(grads, math.inf)), "us"
    yield "gpu.stock.frame_and_copy.device_us", device_us(captured(stock), 5), "us"

    ring = DeviceRing(device, count + 96)
    event = ArrivalEvent(device)
    event.record()
    row = ring._rows[0]
    cell, one = row.narrow(0, 0, 1), torch.ones((), device=device)
    tables = kernels._tables_for(kernels._stream(), count)
    addresses = [grad.data_ptr() for grad in grads]
    flight = fused.capture(grads, range(count), scale)
    assert flight is not None
    flight.event.synchronize()
    for name, call, repeat in (
        ("find", lambda: kernels.find(grads), 100),
        ("place", lambda: tables.place(addresses, object()), 10),
        ("norms", lambda: kernels.norms(work, out), 100),
        ("frame", lambda: kernels.sketch(work, scale, frame), 100),
        ("capture_frame", captured(fused), 50),
        ("read_frame", flight.read, 50),
        ("stock_norms", lambda: gradients.capture(grads), 50),
        ("stock_capture_frame", captured(stock), 3),
        ("foreach_copy", lambda: torch._foreach_copy_([row.narrow(0, 0, 1)], [one.reshape(-1)]), 100),
        ("copy", lambda: cell.copy_(one), 100),
        ("event", event.record, 100),
        ("query", event.query, 100),
        ("ring_step", lambda: ring_step(ring, grads, kernels), 50),
        ("capturing", torch.cuda.is_current_stream_capturing, 100),
    ):
        yield f"gpu.kernels.{name}.host_us", host_us(call, repeat), "us"


def ring_step(ring: DeviceRing, grads: Sequence[torch.Tensor], kernels: FusedPass) -> None:
    """What a step of a fused optimizer under a scaler asks of the ring: its loss twice, norms, a flag, a scale and a
    counter; and the row's way to the host."""
    number = grads[0].reshape(-1)[0]
    ring.put(number)
    work, place = kernels.find(grads), ring.reserve(len(grads))
    assert work is not None
    assert place is not None
    kernels.norms(work, place[1])
    ring.put_later(number)
    ring.flush()
    ring.put_later(number)
    ring.put_later(number)
    ring.flush()
    ring.put(number)
    flight = ring.seal()
    assert flight is not None
    flight.event.query()
    flight.land()


def measure_variants(device: torch.device, shapes: Sequence[torch.Size]) -> Iterator[Line]:
    """Device time of the two large kernels, by how the work is cut; each must give what the default gives."""
    grads = [torch.randn(shape, device=device) * 1e-5 for shape in shapes]
    scale = torch.full((), 65536.0, device=device)
    out = torch.empty(len(grads), dtype=torch.float64, device=device)
    frame = torch.empty((len(grads), layout.ROW_WIDTH), dtype=torch.int64, device=device)
    expected: torch.Tensor | None = None
    for block, warps, pieces in (
        (4096, 4, 2048), (2048, 4, 2048), (4096, 8, 2048), (2048, 4, 8192), (4096, 8, 1024), (4096, 4, 1024),
    ):  # fmt: skip
        kernels = prepared(device, Tuning(squares_block=block, squares_warps=warps, num_pieces=pieces))
        work = kernels.find(grads)
        assert work is not None
        us = device_us(partial(kernels.norms, work, out))
        yield f"gpu.variant.norms.{block}.{warps}.{pieces}.device_us", us, "us"
    for block, warps, pieces in (
        (512, 4, 2048), (1024, 4, 2048), (512, 8, 2048), (256, 4, 2048), (2048, 8, 2048), (512, 4, 4096),
        (512, 4, 1024), (256, 2, 4096),
    ):  # fmt: skip
        kernels = prepared(device, Tuning(sketch_block=block, sketch_warps=warps, num_pieces=pieces))
        work = kernels.find(grads)
        assert work is not None
        frame.zero_()
        us = device_us(partial(kernels.sketch, work, scale, frame))
        counts = frame[:, : layout.NUM_COUNTS].clone()
        expected = counts if expected is None else expected
        differ = (counts != expected).any(0).nonzero().flatten().tolist()
        assert not differ, f"counts depend on how the work was cut, in columns {differ}"
        yield f"gpu.variant.frame.{block}.{warps}.{pieces}.device_us", us, "us"


def prepared(device: torch.device, tuning: Tuning | None = None) -> FusedPass:
    """The kernels of a device, ready for every type that they take."""
    kernels = fused_module.load(device, tuning)
    kernels.prepare(
        [torch.empty(1, dtype=dtype, device=device) for dtype in fused_module.NAMES], tried=tuning is not None
    )
    return kernels
