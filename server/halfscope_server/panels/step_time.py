"""Wall time of each step."""

from __future__ import annotations

from halfscope_server.panels.lines import LinePanel, LineSpec

PANEL = LinePanel(
    id="step-time",
    title="Step time",
    lines=(
        LineSpec(name="time.step_s", words="step time", unit="s"),
        LineSpec(name="time.between_s", words="before the first forward pass", unit="s", width_px=1, role="muted"),
    ),
    y_title="time per step",
    order=50,
    from_zero=True,
)
