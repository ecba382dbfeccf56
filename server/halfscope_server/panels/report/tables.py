"""A report's numbers as tables: one row per thing, one column per run, the baseline first.

Must not import fastapi. Invariant: every number of the report that people may want to check is in one of them; what is
missing is `–`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from halfscope_server.compare.types import Cost, Estimate, LayerDivergence, Quality, Report, Stability
from halfscope_server.query.format import (
    MISSING,
    duration,
    integer,
    norm,
    number,
    power_of_two,
    share,
    short,
    size_bytes,
)

Write = Callable[[float], str]

WORDS = {"equal": "equal within noise", "worse": "▼ worse", "better": "▲ better", "unknown": "cannot be told"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A table with its name."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def estimate(value: Estimate | None, write: Write) -> str:
    """`1.83 (1.79 to 1.87)`."""
    if value is None:
        return MISSING
    if value.low is None or value.high is None:
        return write(value.value)
    return f"{write(value.value)} ({write(value.low)} to {write(value.high)})"


def times(value: float) -> str:
    """A ratio: `1.83×`."""
    return f"{number(round(value, 3))}×"


def signed(value: float) -> str:
    """A relative difference: `+1.2%`."""
    return ("+" if value > 0 else "") + share(value)


def maybe(value: float | None, write: Write) -> str:
    return MISSING if value is None else write(value)


def fairness(report: Report) -> Block:
    """What should be the same, the different first."""
    counts = report.fairness
    rows = [
        [item.title, f"{item.state}, intended" if item.is_intended else item.state, *item.values, item.text]
        for item in counts.items
    ]
    return Block(
        title=f"Fairness: {counts.num_same} same, {counts.num_different} different, {counts.num_unknown} unknown",
        columns=["what", "state", *_names(report), "what follows"],
        rows=rows,
    )


def quality(report: Report) -> Block:
    """The metric that stands for quality."""
    q = report.quality

    def row(name: str, cell: Callable[[Quality], str]) -> list[str]:
        return [name, *map(cell, q)]

    rows = [
        row("level at the end", lambda one: one.final_words or estimate(one.final, number)),
        row("95% interval", lambda one: estimate(one.final, number)),
        row("against A", _difference),
        row("verdict", lambda one: WORDS[one.outcome] if one.difference is not None or one.reason else MISSING),
        row("leaves the noise at step", lambda one: integer(one.first_step)),
        row("noise, half width", _noise),
        row("noise comes from", lambda one: one.noise),
        row("oscillation", lambda one: maybe(one.oscillation, share)),
        row("limits", lambda one: one.reason or MISSING),
    ]
    return Block(title=f"Quality: {report.options.metric}", columns=["", *_names(report)], rows=rows)


def _difference(one: Quality) -> str:
    if one.absolute is not None:
        return f"{'+' if one.absolute > 0 else ''}{number(one.absolute)}"
    return estimate(one.difference, signed)


def _noise(one: Quality) -> str:
    return maybe(one.noise_share, share) if one.absolute is None else maybe(one.noise_absolute, number)


def cost(report: Report) -> Block:
    """Speed and memory."""

    def row(name: str, cell: Callable[[Cost], str]) -> list[str]:
        return [name, *map(cell, report.cost)]

    def rate(one: Cost) -> str:
        return f"{estimate(one.throughput, short)} {one.throughput_unit}" if one.throughput else MISSING

    rows = [
        row("throughput, median", rate),
        row("speedup", lambda one: estimate(one.speedup, times)),
        row("time per step, median", lambda one: estimate(one.step_s, duration)),
        row("spread of step time", lambda one: maybe(one.step_spread, share)),
        row("warm-up left out, steps", lambda one: integer(one.warmup_steps)),
        row("time to A's final level", lambda one: maybe(one.time_to_baseline_s, duration)),
        row("A's own time to it", lambda one: maybe(one.baseline_time_s, duration)),
        row("peak memory", lambda one: f"{maybe(one.peak_memory_bytes, size_bytes)} ({one.memory_of})"),
        row("memory against A", lambda one: maybe(one.memory_ratio, times)),
        row("parameters", lambda one: maybe(one.parameter_bytes, size_bytes)),
        row("gradients", lambda one: maybe(one.gradient_bytes, size_bytes)),
        row("optimizer state", lambda one: maybe(one.optimizer_state_bytes, size_bytes)),
        row("not comparable because of", lambda one: ", ".join(one.confounded_by) or MISSING),
        row("why", lambda one: " ".join(one.because) or MISSING),
    ]
    return Block(title="Cost", columns=["", *_names(report)], rows=rows)


def stability(report: Report) -> Block:
    """Skips, NaN and Inf, the loss scale."""

    def row(name: str, cell: Callable[[Stability], str]) -> list[str]:
        return [name, *map(cell, report.stability)]

    kinds = list(dict.fromkeys(kind for one in report.stability for kind in one.skips))
    rows = [
        row("steps", lambda one: integer(one.num_steps)),
        *(row(f"skips, {kind}", lambda one, kind=kind: integer(one.skips.get(kind, 0))) for kind in kinds),  # type: ignore[misc]
        row("NaN or Inf, caught", lambda one: integer(one.nonfinite_caught)),
        row("NaN or Inf, applied", lambda one: integer(one.nonfinite_applied)),
        row("longest streak of skips", lambda one: integer(one.longest_streak)),
        row("loss scale, lowest", lambda one: maybe(one.scale_min, power_of_two)),
        row("loss scale, highest", lambda one: maybe(one.scale_max, power_of_two)),
        row("loss scale, last", lambda one: maybe(one.scale_last, power_of_two)),
    ]
    return Block(title="Stability", columns=["", *_names(report)], rows=rows)


_LAYER_COLUMNS: tuple[tuple[str, Callable[[LayerDivergence], str]], ...] = (
    ("layer", lambda one: one.layer),
    ("parts from step", lambda one: integer(one.first_step)),
    ("in", lambda one: one.what or MISSING),
    ("distance, bits", lambda one: maybe(one.distance_bits, number)),
    ("noise, bits", lambda one: maybe(one.noise_bits, number)),
    ("norm ratio", lambda one: maybe(one.norm_ratio, norm)),
    ("zeros", lambda one: maybe(one.zero_share, share)),
    ("zeros of A", lambda one: maybe(one.baseline_zero_share, share)),
    ("underflow", lambda one: maybe(one.underflow_share, share)),
    ("FP16 would flush of A, at least", lambda one: maybe(one.would_flush_share, share)),
    ("lost updates", lambda one: maybe(one.lost_update_share, share)),
    ("lost updates of A", lambda one: maybe(one.baseline_lost_update_share, share)),
)


def layers(report: Report) -> list[Block]:
    """Per member its layers, those that part most first."""
    blocks = []
    for member, numerics in list(zip(report.members, report.numerics, strict=True))[1:]:
        words = [numerics.reason] if numerics.reason else []
        words += [f"compared in {numerics.num_frames:,} measured steps"] if numerics.num_frames else []
        for names, who in ((numerics.only_baseline, "A"), (numerics.only_member, member.letter)):
            words += [f"only in {who}: {', '.join(names)}"] if names else []
        blocks.append(
            Block(
                title=f"Layers of {member.letter} {member.name} against A",
                columns=[name for name, _ in _LAYER_COLUMNS],
                rows=[[cell(layer) for _, cell in _LAYER_COLUMNS] for layer in numerics.layers],
                note="; ".join(words),
            )
        )
    return blocks


def members(report: Report) -> Block:
    """Which runs these are."""
    keys = list(dict.fromkeys(key for member in report.members for key in member.config))
    rows = [
        [
            f"{member.letter} {member.name}",
            member.run,
            member.project or MISSING,
            member.precision or MISSING,
            member.state,
            integer(member.last_step),
            *(member.config.get(key, MISSING) for key in keys),
        ]
        for member in report.members
    ]
    return Block(title="Runs", columns=["run", "id", "project", "precision", "state", "last step", *keys], rows=rows)


def _names(report: Report) -> list[str]:
    return [f"{member.letter} {member.name}" for member in report.members]
