"""The typed API: bodies of `/api/v1`; those of alerts are in alert_models.py, live messages in live_models.py.

The web client's types are generated from these. Must not import the store: routes translate.
Invariant: a float that may be non-finite is a `Number`, because JSON has no NaN and turns it into null in silence.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Number = float | Literal["NaN", "Infinity", "-Infinity"] | None
"""A measured number: finite, or the name of what it is instead, or None where there is none."""


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Problem(Model):
    """Every error body. `detail` says what was seen, what was expected and what to do."""

    code: str
    detail: str
    request_id: str


class DeletedProblem(Problem):
    """Body of 410: the run was here, and somebody deleted it."""

    run: str
    name: str
    deleted_us: int


class Chip(Model):
    """A piece of a sentence that the server words and the client only lays out."""

    text: str
    """As shown: `scale 2¹⁵`."""
    label: str = ""
    """For a screen reader, where the text does not read well: `loss scale 2 to the 15th, 32,768`."""
    tone: Literal["plain", "info", "warning", "critical", "muted"] = "plain"
    tooltip: str = ""
    code: bool = False
    """A name of a layer or file: shown in mono, shortened in the middle, whole in the tooltip."""
    anchor: str = ""
    """Id of the panel or tab it explains, for a link."""


class Health(Model):
    """The verdict on a run in one word, with the sentence behind it."""

    word: Literal["healthy", "settling", "unhealthy", "failed", "waiting", "unknown"]
    severity: Literal["ok", "info", "warning", "critical"]
    reasons: list[str]
    """One line each, worst first; empty for a healthy run."""


class Skips(Model):
    total: int
    settling: int
    probe: int
    streak: int
    single: int
    """Skips that are neither settling, probe nor part of a streak."""
    share: float
    """Skips / attempts, 0..1."""
    longest_streak: int


class StripClass(Model):
    """How a class of the strip is drawn and named. Thresholds and colours live on the server."""

    id: int
    name: str
    role: str
    """Colour role of the theme."""
    rank: int
    """When two classes fall on one pixel the higher rank is painted over the lower."""
    min_px: int = 1


class StripRange(Model):
    """A bad stretch: what hover and arrow keys read out, and a screen reader lists."""

    first_step: int
    last_step: int
    text: str
    severity: Literal["info", "warning", "critical"]
    layer: str = ""
    """The layer to look at, where one is known: the worst of the stretch, or where NaN and Inf began."""
    step: int | None = None
    """The step to look at: the worst of the stretch."""


class Strip(Model):
    """A health strip lane: one cell per bin of steps; bin k covers first_step + [k, k+1) * (last_step + 1 -
    first_step) / num_bins."""

    lane: str
    first_step: int
    last_step: int
    num_bins: int
    classes: list[StripClass]
    cells: str
    """base64 of uint8 per bin: class id."""
    heights: str
    """base64 of uint8 per bin: 0..255 of the lane's height."""
    texts: dict[int, str]
    """Read-out of bins that are not plainly clean."""
    ranges: list[StripRange]
    summary: str
    """One sentence for role=img: "12,400 steps, 6 skips, all probes, no NaN or Inf applied"."""
    clock: list[tuple[int, int]] = []
    """(step, time in microseconds) at up to 65 steps, ascending: turns a brushed stretch into times. Empty: not
    known."""


class RugMark(Model):
    """Events that share a place on the rug: one event, or several closer than 4 px."""

    first_step: int
    last_step: int
    count: int
    role: str
    """Colour role of the gravest of them."""
    mark: str
    """Second channel, as in `EventItem.mark`."""
    severity: Literal["info", "warning", "critical"]
    text: str
    """Read-out: "steps 12,000-12,040: 3 skips, 1 scale growth"."""


class Rug(Model):
    """Every event of a run on one line; the counts of the marks add up to `total`."""

    first_step: int
    last_step: int
    total: int
    marks: list[RugMark]


class RunBaseline(Model):
    """What a run is to be compared with, by its own word (`watch(baseline=)`)."""

    asked: str
    """The id or name that was given."""
    run: str | None
    """Id of the run that is meant; None: there is no such run here."""
    name: str
    project: str


class RunSummary(Model):
    """A row of the Runs table; also what the run's header shows."""

    id: str
    name: str
    project: str
    tags: list[str]
    state: Literal["waiting", "live", "finished", "failed", "killed", "lost", "superseded"]
    state_text: str
    """`Live`, `Finished`, `Failed: RuntimeError`, `Killed`, `Lost contact 2 min ago`..."""
    health: Health
    precision: str
    """Label as given: `FP32`, `TF32`, `FP16-AMP`, `FP16`, `BF16-AMP`, `BF16`, `mixed`, or empty when not known yet."""
    precision_role: str
    """Colour role: `fp32`, `fp16`, `bf16`, `fp8` or empty."""
    device: str
    demo: bool
    """True shows the banner: numbers are real, speed is not what a GPU gives."""
    first_step: int | None
    last_step: int | None
    steps_per_s: Number
    loss: Number
    scale: Number
    skips: Skips
    memory_bytes: Number
    """Peak device memory where there is a device, else resident memory."""
    created_us: int
    updated_us: int
    ended_us: int | None
    attempts: int
    world_size: int
    sentence: list[Chip]
    strip: Strip | None
    underflow: Strip | None = None
    """The strip's lower lane: underflow of the worst layer. None: no layer was sketched."""
    baseline: RunBaseline | None = None


class RunList(Model):
    runs: list[RunSummary]
    total: int
    """Before filters: "0 of 34"."""
    projects: list[str]
    tags: list[str]
    precisions: list[str]


class RunPatch(Model):
    name: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    tags: Annotated[list[Annotated[str, Field(min_length=1, max_length=64)]], Field(max_length=32)] | None = None


class ConfigEntry(Model):
    key: str
    value: str
    note: str = ""
    """Where a value is inferred or missing: why."""


class ConfigSection(Model):
    title: str
    entries: list[ConfigEntry]


class RunConfig(Model):
    sections: list[ConfigSection]


class EventItem(Model):
    id: str
    kind: str
    title: str
    """`Skipped step`, `Scale halved`, `Loss is NaN`."""
    text: str
    """One sentence with the numbers: "Scale 65,536 → 32,768. Non-finite: block.3.mlp.fc2 and 2 more; finite: 14
    layers"."""
    severity: Literal["info", "warning", "critical"]
    role: str
    """Colour role of its mark on the rug."""
    mark: str
    """Second channel: `▾`, `✕`, `△`, `●`."""
    step: int
    time_us: int
    rank: int
    attempt: int
    where: list[str]
    details: dict[str, Any]


class EventKind(Model):
    kind: str
    title: str
    severity: Literal["info", "warning", "critical"]
    count: int


class EventPage(Model):
    events: list[EventItem]
    kinds: list[EventKind]
    """Every kind that occurs in the range, with its count before the kind filter."""
    total: int
    next_cursor: str | None


class SeriesItem(Model):
    """One series of a run: a name with its labels."""

    id: str
    """63 bits, as text because JavaScript's numbers hold 53."""
    name: str
    labels: dict[str, str]
    unit: str
    kind: str
    reduction: str


class SeriesList(Model):
    series: list[SeriesItem]


class LayerNode(Model):
    """A node of the layer tree, in preorder: a module, or a parameter tensor (a leaf)."""

    name: str
    """Full dotted name; the root module's is empty."""
    label: str
    """Its own part of the name."""
    depth: int
    """0 for the children of the root."""
    kind: Literal["module", "parameter"]
    elements: int
    """Elements below it."""
    shape: list[int] = []
    """Of a parameter."""
    worst: str
    """Worst value of the statistic in the window, in words: `12.4%`, `-1 bits`, `–`."""
    worst_step: int | None = None
    """Where that was."""
    severity: Literal["ok", "info", "warning", "critical", "unknown"] = "ok"
    spark: str = ""
    """base64 of uint8: class id (see `LayerTree.classes`) per bin of the window."""
    spark_heights: str = ""
    """base64 of uint8 per bin: 0..255."""
    note: str = ""
    """Why there is no value: `no gradient in any measured step`."""
    open: bool = False
    """Whether a module is open when the tree is first seen; what lies below a closed one is not visible."""


class LayerStat(Model):
    id: Literal["underflow", "headroom", "nonfinite", "norm", "zeros"]
    title: str
    text: str
    """One sentence: what the number is."""


class LayerTree(Model):
    """Every layer whose gradient was sketched, with its modules, in forward order."""

    stat: str
    stat_title: str
    stats: list[LayerStat]
    """What can be chosen, in order."""
    nodes: list[LayerNode]
    classes: list[StripClass]
    num_frames: int
    first_step: int | None
    last_step: int | None
    default_layer: str
    """The leaf with the worst underflow; what the window chart shows where no layer is chosen."""
    default_gradient: Literal["seen", "true"]
    """How the window chart shows it where that is left to the run: as FP16 sees it where it computes in FP16."""
    precision_note: str = ""
    """Which of the underflow numbers this run's is: measured or predicted, and at what scale."""
    empty: str = ""
    """Why there are no nodes and what to do: `first sketch at step 50`."""


class PanelInfo(Model):
    id: str
    title: str
    section: str
    """`overview`, `your metrics`, `memory`, `cost`, `layers` (the Layers tab)..."""
    columns: int
    """Width in the grid of 12."""
    height_px: int
    order: int
    folded_on_phone: bool = False


class PanelList(Model):
    panels: list[PanelInfo]


class Table(Model):
    """The same numbers for "Show as table"."""

    columns: list[str]
    rows: list[list[str]]
    note: str = ""
    """Which rows were left out."""


class PanelFill(Model):
    """What changes from tick to tick. `data[i]` is laid over trace i of the skeleton, `layout` over its layout."""

    run: str
    panel: str
    skeleton_id: str
    """The skeleton these arrays fit; another one means: fetch the panel again."""
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    label: str
    """For role=figure: "Loss scale, run fp16-troubled, steps 0 to 12,400, now 2 to the 15th, 6 skips"."""
    headline: str = ""
    """The newest value in words, beside the title: `2¹⁵`."""
    empty: str = ""
    """Why there is nothing to draw, with what to do; the chart is then replaced by it."""
    first_step: int | None
    last_step: int | None


class PanelFigure(Model):
    """A panel whole: the validated skeleton once, and its first fill.

    Colours are roles: a trace carries `meta.role` (line and marker colour), a shape or annotation `name =
    "role:<role>"`.
    """

    info: PanelInfo
    skeleton: dict[str, Any]
    fill: PanelFill


class Theme(Model):
    """Colour role to CSS colour."""

    light: dict[str, str]
    dark: dict[str, str]


class ServerInfo(Model):
    version: str
    address: str
    """What to put into HALFSCOPE_SERVER; shown in the three lines of code of the empty state."""
    database: Literal["sqlite", "postgresql"]
    web_version: str
    snippet: str
    """The three lines of code of the empty state, address filled in where it is not the default."""


class SignIn(Model):
    code: str


class SignedIn(Model):
    expires_us: int


class SignInLink(Model):
    """Opens the web app signed in, once, until it expires. The code stands in the fragment, which browsers never
    send."""

    url: str
    code: str
    expires_us: int


class ServerHealth(Model):
    """Body of /healthz; 200 when `ok`, else 503."""

    ok: bool
    database: str
    """`ok`, or what is wrong with it."""
    writer: str


class Window(Model):
    """Which part, and how it is drawn. `first`/`last` None: the whole run, following its end."""

    x: Literal["step", "time"] = "step"
    first: Annotated[float, Field(allow_inf_nan=False)] | None = None
    last: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """In steps, or in microseconds since the epoch when x is `time`."""
    y: Literal["linear", "log", "auto"] = "auto"
    smooth: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Weight of the exponential moving average; 0: off. The raw line stays visible behind it."""
    width_px: Annotated[int, Field(ge=50, le=4000)] = 800
    utc_offset_min: Annotated[int, Field(ge=-18 * 60, le=18 * 60)] = 0
    """Minutes to add to UTC for the viewer's local time on the time axis."""
    layer: Annotated[str, Field(max_length=512)] = ""
    """Name of a parameter or module; empty: the layer with the worst underflow."""
    stat: Literal["underflow", "headroom", "nonfinite", "norm", "zeros"] = "underflow"
    """What the layers' heatmap shows."""
    step: Annotated[int, Field(ge=0)] | None = None
    """The step whose histogram is shown: the measured one nearest to it. None: the newest."""
    gradient: Literal["auto", "seen", "true"] = "auto"
    """As FP16 sees it (times the loss scale), or as it is; `auto`: seen where the run computes in FP16."""
    rows: Annotated[list[Annotated[str, Field(max_length=512)]], Field(max_length=400)] = []
    """Visible nodes of the layer tree, in order; empty: as the tree stands when it is first opened."""
    rank: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """Whose line is drawn, with those of all others as the band behind it; None: the run's, of all ranks together."""
