"""Wall time of each step of all runs."""

from __future__ import annotations

from halfscope_server.panels.compared.overlay import OverlayPanel

PANEL = OverlayPanel(
    id="compare-step-time",
    title="Step time",
    names=lambda _: ("time.step_s",),
    y_title="time per step",
    section="cost",
    unit="s",
    columns=4,
    order=31,
    from_zero=True,
)
