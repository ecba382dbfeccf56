"""Wall time of each step."""

from __future__ import annotations

from halfscope_server.panels.lines import LinePanel, LineSpec

PANEL = LinePanel(
    id="step-time",
    title="Step time",
    lines=(LineSpec(name="time.step_s", words="step time", unit="s"),),
    y_title="time per step",
    order=50,
    from_zero=True,
)
