"""What a comparison says, as data: the contract between those who work it out and those who show it.

The typed API hands these out as they are. Must import nothing of the project. Invariants: lists "by member" have one
entry per run, the baseline's first; every float is finite; shares are 0..1; what is missing is None, with its reason
in words beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

MAX_MEMBERS = 8
"""Runs of one comparison, the baseline among them."""

Alignment = Literal["attempts", "applied", "samples", "tokens", "time"]
"""What one step of a run is set beside in another: the same attempt, the same number of applied steps, samples or
tokens seen, or seconds since the run's first step."""
Agreement = Literal["same", "different", "unknown"]
Outcome = Literal["equal", "worse", "better", "unknown"]
"""Against the baseline; `equal` means within the noise that is stated."""
NoiseKind = Literal["repeats", "paired", "tolerance", "none"]
"""Where a noise band comes from: repeats of a configuration; the scatter of the difference between runs of one seed and
data order; the stated tolerance alone; nothing, so that nothing can be said."""

REPORT_VERSION = 1
"""Another number where a field of the report is gone or means something else."""


class Documented:
    """What the typed API describes by the docstrings of its fields."""

    __slots__ = ()
    __pydantic_config__: ClassVar[dict[str, bool]] = {"use_attribute_docstrings": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(Documented):
    """How runs are compared; hashable, because viewers who ask for the same share one computation."""

    metric: str = "loss"
    """Series that stands for quality."""
    align: Alignment = "attempts"
    tolerance_share: float = 0.005
    """Relative difference that is never called one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate(Documented):
    """A number with its 95% interval."""

    value: float
    low: float | None = None
    high: float | None = None
    """None: too few values for an interval."""
    count: int = 0
    """Values it rests on (steps, blocks or runs, as the field says)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member(Documented):
    """One run of a comparison."""

    run: str
    name: str
    project: str
    letter: str
    """`A` for the baseline, then `B` ..."""
    precision: str
    precision_role: str
    """Colour role of its lines."""
    state: str
    """As in the table of runs: `live`, `finished` ..."""
    last_step: int | None
    group: int
    """Runs that differ in nothing but the seed are repeats of one configuration and have the same number; the
    baseline's is 0."""
    config: dict[str, str] = field(default_factory=dict)
    """What tells it from the others: keys in which members differ."""


# ---- fairness --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FairnessItem(Documented):
    """One thing that runs should agree in."""

    id: str
    title: str
    state: Agreement
    """`different` where any member differs from the baseline."""
    values: list[str]
    """By member, in words; `–` where not recorded."""
    states: list[Agreement]
    """By member against the baseline; the baseline's own is `same`."""
    confounds: list[Literal["quality", "speed", "memory"]]
    """What a difference here makes impossible to attribute to precision."""
    text: str = ""
    """What follows from it, or why it is unknown: `batch 64 against 32: speed and quality are not comparable`."""
    is_intended: bool = False
    """What is being compared (precision, scaler): a difference here is no unfairness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fairness(Documented):
    """All of them, different ones first."""

    items: list[FairnessItem]
    num_same: int
    num_different: int
    """Without intended ones."""
    num_unknown: int


# ---- quality, cost, stability ----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality(Documented):
    """One metric of one member against the baseline."""

    run: str
    metric: str
    outcome: Outcome
    lower_is_better: bool
    final: Estimate | None
    """Level at the end: the mean over the last tenth of what both have (at least 20 places, but no more than the last
    quarter)."""
    final_words: str
    """Also where it is not finite: `NaN from step 1,202`."""
    difference: Estimate | None
    """Relative to the baseline's level there, positive where larger; None for the baseline itself."""
    first_x: float | None
    """Where the difference leaves the noise band and stays out to the end of what both have."""
    first_step: int | None
    """The member's own step there."""
    noise: NoiseKind
    noise_share: float | None
    """Half width of the band at the end, relative to the baseline's level."""
    absolute: float | None = field(default=None, kw_only=True)
    """The difference itself, where it is more than ten times the baseline's level: that is next to nothing then, and
    what is relative to it tells nothing."""
    noise_absolute: float | None = field(default=None, kw_only=True)
    """Half width of the band, where the difference is told absolute."""
    oscillation: float | None
    """`loss_oscillation` over the last 200 steps, for the loss."""
    reason: str = ""
    """Why it is unknown, or what limits it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost(Documented):
    """What a member takes, and against the baseline."""

    run: str
    throughput: Estimate | None
    """Median samples/s (tokens/s where no samples are known, steps/s where neither), warm-up left out; bootstrap."""
    throughput_unit: str
    speedup: Estimate | None
    """Ratio of throughputs; None for the baseline."""
    step_s: Estimate | None
    """Median."""
    step_spread: float | None
    """(95th - 5th percentile) / median of the step time."""
    warmup_steps: int
    time_to_baseline_s: float | None
    """Training time until it had the baseline's final level of the metric; None: not reached."""
    baseline_time_s: float | None
    peak_memory_bytes: int | None
    """Of the device where there is one, else of the process."""
    memory_of: str
    """`device` or `process`."""
    parameter_bytes: int | None
    gradient_bytes: int | None
    optimizer_state_bytes: int | None
    memory_ratio: float | None
    """Peak against the baseline's."""
    confounded_by: list[str]
    """Ids of fairness items that make speed or memory incomparable."""
    because: list[str]
    """Where it is slower than the baseline, or its numbers are limited: why, in sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stability(Documented):
    """How a member fared with its numbers."""

    run: str
    num_steps: int
    skips: dict[str, int]
    """By class: settling, probe, single, streak ..."""
    nonfinite_caught: int
    nonfinite_applied: int
    longest_streak: int
    scale_min: float | None
    scale_max: float | None
    scale_last: float | None


# ---- numerics --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerDivergence(Documented):
    """One layer of one member against the baseline's, over the frames that both have."""

    layer: str
    distance_bits: float | None
    """Earth mover's distance between the two exponent histograms of nonzero finite elements, in bits (log2), over the
    last tenth of common frames added up."""
    noise_bits: float | None
    """What repeats, or the first common frames, differ by."""
    norm_ratio: float | None
    """Member's over baseline's, there."""
    zero_share: float | None
    baseline_zero_share: float | None
    underflow_share: float | None
    """As everywhere, of the member."""
    would_flush_share: float | None
    """What FP16 would flush of the baseline's gradient at the member's scale: a lower bound."""
    lost_update_share: float | None
    """Nonzero updates that did not change the stored weight, of the member."""
    baseline_lost_update_share: float | None
    first_step: int | None
    """The member's first sketched step from which it differs beyond noise and stays so; None: it does not."""
    what: str
    """In which respect it parted: `zeros`, `distance`, `norm`, `nonfinite`, `updates`; empty where it did not."""
    score: float
    """Order of ranking, larger is worse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics(Documented):
    """Layers of one member against the baseline's, worst first."""

    run: str
    layers: list[LayerDivergence]
    num_common: int
    """Layers that both have."""
    only_baseline: list[str]
    only_member: list[str]
    num_frames: int
    """Sketched steps that both have."""
    interval: int | None
    """Steps between them: how exactly a first step is known."""
    first_step: int | None
    first_layer: str
    """The layer that parted first; of several at one frame the last in forward order, whose gradient comes first."""
    reason: str = ""
    """Why nothing can be said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason(Documented):
    """Why a member is likely worse, or the baseline where the member is better: one mechanism with its evidence."""

    id: str
    """`underflow`, `lost_updates`, `scale_collapsed`, `nonfinite_applied`, `skips` ..."""
    text: str
    """One sentence with numbers: `head.weight lost 62% of its gradient below FP16's floor from step 340 on`."""
    layer: str = ""
    step: int | None = None
    certainty: Literal["measured", "likely"] = "likely"
    is_of_baseline: bool = False
    """What was wrong with the baseline, where the member is better."""
    score: float = 0.0
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Documented):
    """What is said of one member against the baseline."""

    run: str
    outcome: Outcome
    sentence: str
    from_step: int | None
    layer: str
    reasons: list[Reason]
    limits: list[str]
    """What this does not say, or rests on: `one run each; tolerance 0.5%`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Documented):
    """A comparison whole; lists are by member."""

    key: str
    """Run ids joined by commas: which comparison this is."""
    options: Options
    members: list[Member]
    metrics: list[str]
    """Series that at least two members have and that can stand for quality."""
    sentence: str
    """The verdict at the top."""
    outcome: Outcome
    is_live: bool
    fairness: Fairness
    quality: list[Quality]
    cost: list[Cost]
    stability: list[Stability]
    numerics: list[Numerics]
    """The baseline's has no layers."""
    verdicts: list[Verdict]
    """Without the baseline."""
    version: int = REPORT_VERSION
    """Of this format; another number where a field is gone or means something else."""
