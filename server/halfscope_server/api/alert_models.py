"""The typed API of alerts: bodies under `/api/v1/alerts`, `/rules`, `/channels`, `/silences`, and their live message.

Must not import the store: routes translate. Invariant: nothing here can hold a channel's secret on its way out.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from halfscope_server.alerts.rule import Rule
from halfscope_server.api.models import Model, Number

Severity = Literal["info", "warning", "critical"]


class AlertItem(Model):
    """One episode of one rule on one run."""

    id: str
    rule: str
    rule_name: str
    run: str
    run_name: str
    project: str
    metric: str
    layer: str
    rank: int | None
    labels: dict[str, str]
    severity: Severity
    state: Literal["pending", "firing", "resolved", "no_data", "error"]
    text: str
    """The sentence: "block.3.mlp.fc2: NaN/Inf rate 4.1% > 1% for 200 steps"."""
    reason: str
    """Why the rule asks for this."""
    runbook: str
    first_step: int
    fired_step: int | None
    last_step: int
    resolved_step: int | None
    first_us: int
    fired_us: int | None
    last_us: int
    resolved_us: int | None
    resolution: str
    value: Number
    worst: Number
    threshold: Number
    value_text: str
    """As shown: `4.1%`, `2⁻³`; empty where the rule only asks whether something is so."""
    threshold_text: str
    spark_steps: list[int]
    spark_values: list[Number]
    """The evidence: what was compared, around the firing."""
    acknowledged_us: int | None
    acknowledged_by: str
    muted_by: str
    """Why nothing was sent, in words; empty: it was, or there is no channel."""
    silence: SilenceItem | None
    """What keeps it quiet now, though it may have been sent before; of several the one that ends last."""
    panel: str
    """Id of the panel that shows its metric on the run's Overview; empty: none does."""
    link: str
    """Path and query within the web app: the run, zoomed on the evidence, the layer chosen."""
    notices: list[NoticeItem]


class NoticeItem(Model):
    """What became of one notification."""

    channel: str
    channel_name: str
    kind: str
    """`fired`, `resolved`, `repeat:1` ..."""
    state: Literal["waiting", "sending", "sent", "failed"]
    num_tries: int
    created_us: int
    sent_us: int | None
    error: str


class AlertCounts(Model):
    """For the bell."""

    firing: int
    unacknowledged: int
    critical: int
    """Firing, critical and not acknowledged."""


class AlertList(Model):
    alerts: list[AlertItem]
    counts: AlertCounts
    next_cursor: str | None = None


class AlertBand(Model):
    """A stretch of a run in which a rule fired, to be laid over the charts of its metric."""

    alert: str
    panel: str
    layer: str
    first_step: int
    last_step: int | None
    """None: it fires still."""
    severity: Severity
    text: str


class AlertBands(Model):
    bands: list[AlertBand]


class SilenceBody(Model):
    """Silence what matches; empty rule, run and layer match everything, which must be said with `everything`."""

    rule: str = ""
    run: str = ""
    layer: str = ""
    comment: Annotated[str, Field(max_length=500)] = ""
    for_s: Annotated[float, Field(gt=0, le=365 * 86400)] | None = None
    """None: until it is lifted."""
    everything: bool = False


class SilenceItem(Model):
    id: str
    rule: str
    run: str
    run_name: str
    layer: str
    comment: str
    created_us: int
    until_us: int | None


class SilenceList(Model):
    silences: list[SilenceItem]


class RuleItem(Model):
    rule: Rule
    version: int
    sentence: str
    """The rule in words: "NaN/Inf rate, mean over 200 steps, above 1%"."""
    firing: int
    pending: int
    last_fired_us: int | None
    error: str
    """Why it cannot be evaluated on some run; empty: it can."""


class RuleList(Model):
    rules: list[RuleItem]


class Preset(Model):
    """A rule ready to be taken over."""

    rule: Rule
    title: str
    group: str
    """`NaN and Inf`, `Loss scale`, `Underflow`, `Loss and gradients`, `Speed`, `The run`."""
    sentence: str
    taken: bool
    """Whether a rule was made from it."""


class PresetList(Model):
    presets: list[Preset]


class PresetChoice(Model):
    """Which presets to make rules of."""

    ids: Annotated[list[str], Field(max_length=200, default_factory=list)]
    """Empty: the recommended ones, which are those of warnings and worse. One that was taken already stays as it is."""


class MetricItem(Model):
    """What a rule can be about."""

    id: str
    title: str
    unit: str
    text: str
    """One sentence: what the number is."""
    derived: bool
    per_layer: bool
    aggregations: list[str]
    """Ids of those that make sense for it."""


class AggregationItem(Model):
    id: str
    title: str
    text: str
    needs_window: bool
    argument: str
    """Name of its argument: `quantile`; empty: it takes none."""
    default_argument: float | None
    unit: Literal["same", "share", "", "per"]
    """Of the result: that of the metric, a share, a plain number, or the metric's per step or second."""
    takes_baseline: bool
    """Whether it can be compared with another run."""


class RuleVocabulary(Model):
    """For the sentence editor: what can be chosen."""

    metrics: list[MetricItem]
    """Derived ones first, then the series of the runs there are."""
    aggregations: list[AggregationItem]
    projects: list[str]
    tags: list[str]


class BacktestBody(Model):
    rule: Rule
    runs: Annotated[list[str], Field(max_length=20, default_factory=list)]
    """Ids; empty: the newest that the rule's scope holds, at most 5."""
    width_px: Annotated[int, Field(ge=50, le=4000)] = 600


class BacktestEpisode(Model):
    layer: str
    rank: int | None
    first_step: int
    fired_step: int
    resolved_step: int | None
    value: Number
    worst: Number


class BacktestRun(Model):
    run: str
    run_name: str
    first_step: int | None
    last_step: int | None
    steps: list[int]
    low: list[Number]
    high: list[Number]
    """The compared number, thinned so that no crossing of the threshold is lost: band per bin of steps."""
    episodes: list[BacktestEpisode]
    """At most 200; `num_episodes` counts all."""
    num_episodes: int
    note: str
    """Why there is nothing to judge: `this run has no series "val/accuracy"`."""


class Backtest(Model):
    """When a rule would have fired."""

    runs: list[BacktestRun]
    summary: str
    """"would have fired 2 times in 3 runs"."""
    noisy: str
    """A warning where it would have fired too often or flapped; empty: none."""
    value_unit: str
    """`flag`: the numbers only say whether something is so."""
    took_ms: float


class ChannelKind(Model):
    """A kind of channel and what it asks for."""

    kind: str
    title: str
    text: str
    fields: list[ChannelField]


class ChannelField(Model):
    name: str
    title: str
    secret: bool
    required: bool
    placeholder: str
    text: str


class ChannelBody(Model):
    kind: Annotated[str, Field(max_length=64)]
    name: Annotated[str, Field(min_length=1, max_length=200)]
    enabled: bool = True
    options: Annotated[dict[str, str], Field(default_factory=dict)]
    secrets: Annotated[dict[str, str], Field(default_factory=dict)]
    """Write-only. When a channel is changed, a secret that is left out stays as it is."""


class ChannelItem(Model):
    id: str
    kind: str
    name: str
    enabled: bool
    options: dict[str, str]
    secrets_set: list[str]
    """Names of the secrets that are kept."""
    last_sent_us: int | None
    last_error: str
    num_waiting: int


class ChannelList(Model):
    channels: list[ChannelItem]
    kinds: list[ChannelKind]


class TestResult(Model):
    ok: bool
    text: str
    """What was sent where, or what went wrong and what to do."""
    took_ms: float


class RulesText(Model):
    """Rules as YAML."""

    text: Annotated[str, Field(max_length=1_000_000)]


class ImportResult(Model):
    """What importing YAML did, or would do when it was only checked."""

    created: list[str]
    changed: list[str]
    unchanged: list[str]
    problems: list[RuleProblem]
    """Nothing is taken over when there is any."""


class RuleProblem(Model):
    where: str
    """`rules[2].threshold`, with the line where it is known."""
    text: str


class RuleCheck(Model):
    """What can be said of a rule without saving it."""

    sentence: str
    """In words; empty while it cannot be evaluated."""
    problems: list[RuleProblem]
    """`where` is the field: `threshold`, `window.steps`."""


class LiveAlerts(Model):
    """Live message, to every page: the bell's numbers, and what changed since the last one."""

    type: Literal["alerts"]
    counts: AlertCounts
    silences: list[str]
    """Ids of those that hold: where they differ from those before, alerts and silences are to be read anew."""
    changed: list[AlertItem]


AlertItem.model_rebuild()
ChannelKind.model_rebuild()
ImportResult.model_rebuild()
