"""What a rule is: the one definition that page, API, YAML and Python share.

Owns the shape of a rule and what can be said of it without data. Metrics and aggregations are looked up by name in
their folders. Must not import the store. Invariant: a `Rule` that exists can be evaluated; what is wrong with one is
said by field, with what was seen and what was expected.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Severity = Literal["info", "warning", "critical"]
Comparison = Literal[">", ">=", "<", "<="]
GroupKey = Literal["run", "layer", "rank"]

TOLD_ONLY = frozenset(
    {"name", "severity", "inhibited_by", "repeat_s", "channels", "message", "runbook", "reason", "preset"}
)
"""Fields that change what is told and to whom, and nothing of what is judged: what fires goes on when they change."""

Glob = Annotated[str, Field(min_length=1, max_length=512)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


class Span(_Model):
    """A stretch of training: so many steps, or so many seconds of its own clock (the times its steps were taken at).
    Both absent: none at all."""

    steps: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    seconds: Annotated[float, Field(ge=0, le=30 * 86_400)] | None = None


class Scope(_Model):
    """What a rule looks at. Empty lists: everything; several entries of one list: any of them."""

    projects: Annotated[list[Glob], Field(max_length=64)] = []
    tags: Annotated[list[Glob], Field(max_length=64)] = []
    runs: Annotated[list[Glob], Field(max_length=64)] = []
    """Patterns of a run's name, or its id."""
    layers: Annotated[list[Glob], Field(max_length=64)] = []
    """Patterns of parameters' names, for metrics of layers."""
    ranks: Annotated[list[int], Field(max_length=4096)] = []


class Rule(_Model):
    """When `aggregation` of `metric` over `window` is beyond `threshold` for long enough, say so."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
    """Stays when the rule is changed; what YAML and inhibitions refer to."""
    name: Annotated[str, Field(min_length=1, max_length=200)]
    enabled: bool = True
    metric: Annotated[str, Field(min_length=1, max_length=200)]
    """Name of a series (`amp.scale`, `val/accuracy`), or of a derived metric (`nonfinite_rate.applied`)."""
    aggregation: Annotated[str, Field(min_length=1, max_length=32)] = "last"
    argument: float | None = None
    """Of the aggregation: which quantile."""
    window: Span = Span(steps=1)
    comparison: Comparison = ">"
    threshold: float
    clear: float | None = None
    """What it must come back to before it counts as over; None: the threshold."""
    hold: Span = Span()
    """How long it must be so before it fires (`for` in other systems)."""
    keep_firing: Span = Span()
    """How long it must be over before it is resolved."""
    severity: Severity = "warning"
    scope: Scope = Scope()
    group_by: Annotated[list[GroupKey], Field(max_length=3)] = ["run"]
    """One alert for each. A series' own labels (scaler, optimizer) always tell apart."""
    baseline: Annotated[str, Field(max_length=200)] = ""
    """For `ratio`: id of the run compared with; empty: the run's own past."""
    inhibited_by: Annotated[list[str], Field(max_length=32)] = []
    """Ids of rules which, firing on the same run, keep this one from sending."""
    repeat_s: Annotated[float, Field(ge=60)] | None = None
    """Send again so often while it fires and nobody acknowledged; None: once."""
    channels: Annotated[list[str], Field(max_length=32)] | None = None
    """Ids of channels; None: all that are switched on."""
    message: Annotated[str, Field(max_length=2000)] = ""
    """Template of the sentence; empty: the one made from the rule. Fields: {run}, {project}, {layer}, {rank}, {metric},
    {value}, {threshold}, {step}, {first_step}, {severity}, {url}."""
    runbook: Annotated[str, Field(max_length=1000, pattern=r"^(https?://\S+)?$")] = ""
    reason: Annotated[str, Field(max_length=2000)] = ""
    """Why this threshold; shown beside the rule."""
    preset: str = ""
    """Id of the preset it was made from."""
