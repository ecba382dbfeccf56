"""What the loop itself says: loss, learning rate, batch, time, throughput, and what watching costs.

Invariant: the loss is the raw one, never scaled; time is wall time between the completion of two attempts.
"""

from __future__ import annotations

from halfscope.probes.spec import SeriesSpec

SERIES = (
    SeriesSpec(name="loss", unit="", reduction="mean"),
    SeriesSpec(name="lr", unit="", kind="state", labels=("optimizer", "group")),
    SeriesSpec(name="samples", unit="samples", kind="state", reduction="sum"),
    SeriesSpec(name="tokens", unit="tokens", kind="state", reduction="sum"),
    SeriesSpec(name="time.step_s", unit="s", reduction="max"),
    SeriesSpec(name="time.between_s", unit="s", reduction="max"),
    SeriesSpec(name="throughput.samples_per_s", unit="samples/s", reduction="sum"),
    SeriesSpec(name="throughput.tokens_per_s", unit="tokens/s", reduction="sum"),
    SeriesSpec(name="halfscope.cost_share", unit="share", reduction="max"),
    SeriesSpec(name="halfscope.sketch_every", unit="steps", kind="state"),
)
