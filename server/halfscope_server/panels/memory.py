"""Memory of the process and of its device."""

from __future__ import annotations

from halfscope_server.panels.lines import LinePanel, LineSpec

PANEL = LinePanel(
    id="memory",
    title="Memory",
    lines=(
        LineSpec(name="memory.device_peak_bytes", words="device, peak", unit="bytes"),
        LineSpec(name="memory.device_allocated_bytes", words="device, allocated", unit="bytes"),
        LineSpec(name="memory.rss_bytes", words="process, resident", unit="bytes"),
    ),
    y_title="memory",
    section="memory and cost",
    columns=6,
    order=800,
    from_zero=True,
)
