"""Memory of all runs: of their devices, of their processes where there is none."""

from __future__ import annotations

from halfscope_server.panels.compared.overlay import OverlayPanel

PANEL = OverlayPanel(
    id="compare-memory",
    title="Memory",
    names=lambda _: ("memory.device_peak_bytes", "memory.device_allocated_bytes", "memory.rss_bytes"),
    y_title="memory",
    section="cost",
    unit="bytes",
    columns=4,
    order=32,
    from_zero=True,
)
