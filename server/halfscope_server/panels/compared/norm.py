"""Norm of the unscaled gradient before clipping, of all runs."""

from __future__ import annotations

from halfscope_server.panels.compared.overlay import OverlayPanel

PANEL = OverlayPanel(
    id="compare-norm",
    title="Gradient norm",
    names=lambda _: ("grad.norm",),
    y_title="L2 norm, unscaled",
    section="stability",
    unit="norm",
    order=41,
    scale="log",
)
