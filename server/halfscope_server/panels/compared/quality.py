"""The metric that stands for quality, of all runs over each other."""

from __future__ import annotations

from halfscope_server.panels.compared.overlay import OverlayPanel

PANEL = OverlayPanel(
    id="compare-quality",
    title="Quality",
    names=lambda comparison: (comparison.options.metric,),
    y_title="",
    section="quality",
    columns=12,
    height_px=320,
    order=10,
    folded_on_phone=False,
    scale="auto",
)
