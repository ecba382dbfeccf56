"""Measurements, how uncertain they are, the marks they are held against, and how all are printed.

Must not import what is measured. Invariant: standard output holds `name value unit` lines; all else begins with #.
"""

from __future__ import annotations

import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One number."""

    name: str
    value: float
    unit: str

    def line(self) -> str:
        return f"{self.name} {self.value:.6g} {self.unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What a number should be at most or at least."""

    relation: Literal["<=", ">="]
    value: float

    def met(self, value: float) -> bool:
        return value <= self.value if self.relation == "<=" else value >= self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One group of numbers that are measured together, interleaved with their baseline."""

    names: Sequence[str]
    """What `run` yields."""
    run: Callable[[bool], Iterator[Measurement]]
    """Takes `quick`: few rounds, for a look or a test of the runner; the numbers then mean little."""

    def matches(self, pattern: str) -> bool:
        return any(fnmatchcase(name, pattern) for name in self.names)


MARKS: dict[str, Mark] = {
    "agent.gpt.default.ratio": Mark(relation="<=", value=1.01),
    "agent.cnn.default.ratio": Mark(relation="<=", value=1.01),
    "agent.lightning.default.ratio": Mark(relation="<=", value=1.01),
    "agent.trainer.default.ratio": Mark(relation="<=", value=1.01),
    "agent.mlp.default.extra_us": Mark(relation="<=", value=25.0),
    "agent.mlp.plain.extra_us": Mark(relation="<=", value=60.0),
    "agent.gpt.every_step.ratio": Mark(relation="<=", value=1.03),
    "agent.cnn.every_step.ratio": Mark(relation="<=", value=1.03),
    "agent.gpt.plain_every_step.ratio": Mark(relation="<=", value=1.12),
    "agent.cnn.plain_every_step.ratio": Mark(relation="<=", value=1.12),
    "agent.log20.p50_us": Mark(relation="<=", value=5.0),
    "agent.log20.p99_us": Mark(relation="<=", value=50.0),
    "agent.memory_mib": Mark(relation="<=", value=32.0),
    "agent.sender_memory_mib": Mark(relation="<=", value=48.0),
    "ddp.gpt2ranks.ratio": Mark(relation="<=", value=1.01),
    "ddp.gpt2ranks.collectives_added": Mark(relation="<=", value=0.0),
    "server.ingest.points_per_s": Mark(relation=">=", value=1_000_000.0),
    "server.ingest.ack_p99_ms": Mark(relation="<=", value=1_000.0),
    "server.ingest.lost": Mark(relation="<=", value=0.0),
    "server.step_to_pixel_p95_ms": Mark(relation="<=", value=1_500.0),
    "server.series_1m_ms": Mark(relation="<=", value=30.0),
    "server.layer_2000_frames_ms": Mark(relation="<=", value=20.0),
    "server.page_20_charts_1m_ms": Mark(relation="<=", value=300.0),
    "server.bytes_per_noisy_point": Mark(relation="<=", value=3.5),
    "server.layers_heatmap_ms": Mark(relation="<=", value=150.0),
    "compare.first_view_1m_ms": Mark(relation="<=", value=300.0),
    "compare.eight_runs_ms": Mark(relation="<=", value=1_000.0),
    "alerts.backtest_1m_ms": Mark(relation="<=", value=300.0),
    "alerts.core_share": Mark(relation="<=", value=0.2),
    "alerts.step_to_notify_p95_ms": Mark(relation="<=", value=2_000.0),
}


def paired(values: Sequence[float]) -> list[float]:
    """Means of neighbours, of which the second ran backwards; a last one without a neighbour is left out."""
    return [(one + other) / 2 for one, other in zip(values[::2], values[1::2], strict=False)]


def error(values: Sequence[float]) -> float:
    """Standard error of the median; NaN of fewer than three."""
    if len(values) < 3:
        return math.nan
    middle = statistics.median(values)
    mad = statistics.median(abs(value - middle) for value in values)
    return 1.2533 * 1.4826 * mad / math.sqrt(len(values))


def middle(values: Sequence[float]) -> float:
    """The mean without a tenth at each end: where a machine goes at either of two paces a median hops."""
    cut = len(values) // 10
    return statistics.fmean(sorted(values)[cut : len(values) - cut])


def middle_error(values: Sequence[float]) -> float:
    """Standard error of `middle`, by the variance with what was cut moved to the ends of the rest; NaN of fewer than 3.

    Tukey and McLaughlin, Sankhya A 25 (1963).
    """
    if len(values) < 3:
        return math.nan
    cut, found = len(values) // 10, sorted(values)
    kept = found[cut : len(found) - cut]
    pulled_in = [kept[0]] * cut + kept + [kept[-1]] * cut
    return statistics.stdev(pulled_in) / ((1 - 2 * cut / len(found)) * math.sqrt(len(found)))


def machine_line() -> str:
    """Date and machine, as a comment: a number without them is worth nothing."""
    return (
        f"# {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())} · {_processor()} · {os.cpu_count()} cores · "
        f"load {os.getloadavg()[0]:.1f} · {platform.system()} · Python {platform.python_version()}"
    )


def summary(measured: Sequence[Measurement]) -> list[str]:
    """One comment line per mark that was measured, and what was left out."""
    values = {each.name: each for each in measured}
    lines = ["# marks"]
    for name, mark in MARKS.items():
        if name not in values:
            lines.append(f"#   not run  {name} {mark.relation} {mark.value:g}")
            continue
        verdict = "met     " if mark.met(values[name].value) else "missed  "
        lines.append(f"#   {verdict} {values[name].line()} (mark {mark.relation} {mark.value:g})")
    return lines


def say(text: str) -> None:
    """A comment while something takes long."""
    print(f"# {text}", file=sys.stderr, flush=True)


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
