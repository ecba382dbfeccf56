"""The loss scale of all runs that have one, in powers of two."""

from __future__ import annotations

from halfscope_server.panels.compared.overlay import OverlayPanel

PANEL = OverlayPanel(
    id="compare-scale",
    title="Loss scale",
    names=lambda _: ("amp.scale",),
    y_title="loss scale",
    section="stability",
    order=40,
    scale="exponent",
    can_smooth=False,
)
