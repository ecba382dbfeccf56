"""The loss scale and its consequences: scale used and next, growth tracker, skipped steps, applied steps.

Invariant: `amp.scale` is what the step's backward used, `amp.scale_next` what the next one will; a falling scale and
a skip are separate facts.
"""

from __future__ import annotations

from halfscope.probes.spec import SeriesSpec

SERIES = (
    SeriesSpec(name="amp.scale", kind="state", labels=("scaler",)),
    SeriesSpec(name="amp.scale_next", kind="state", labels=("scaler",)),
    SeriesSpec(name="amp.growth_tracker", unit="steps", kind="state", labels=("scaler",)),
    SeriesSpec(name="amp.skipped", kind="flag", reduction="max", labels=("optimizer",)),
    SeriesSpec(name="opt.steps", unit="steps", kind="counter", labels=("optimizer",)),
)
