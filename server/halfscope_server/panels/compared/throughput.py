"""Samples per second of all runs, tokens where no samples are known."""

from __future__ import annotations

from halfscope_server.panels.compared.overlay import OverlayPanel

PANEL = OverlayPanel(
    id="compare-throughput",
    title="Throughput",
    names=lambda _: ("throughput.samples_per_s", "throughput.tokens_per_s"),
    y_title="throughput",
    section="cost",
    columns=4,
    order=30,
    from_zero=True,
)
