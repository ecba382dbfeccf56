"""Samples and tokens per second."""

from __future__ import annotations

from halfscope_server.panels.lines import LinePanel, LineSpec

PANEL = LinePanel(
    id="throughput",
    title="Throughput",
    lines=(
        LineSpec(name="throughput.samples_per_s", words="samples", unit="samples/s"),
        LineSpec(name="throughput.tokens_per_s", words="tokens", unit="tokens/s", width_px=1, right=True, role="muted"),
    ),
    y_title="samples/s",
    right_title="tokens/s",
    order=40,
    from_zero=True,
)
