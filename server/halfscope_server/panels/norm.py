"""Norm of the unscaled gradient before clipping, and thinly the norm the optimizer was handed."""

from __future__ import annotations

from halfscope_server.panels.lines import LinePanel, LineSpec

PANEL = LinePanel(
    id="norm",
    title="Gradient norm",
    lines=(
        LineSpec(name="grad.norm", words="before clipping", unit="norm"),
        LineSpec(name="grad.norm_clipped", words="handed to the optimizer", unit="norm", width_px=1, role="muted"),
    ),
    y_title="L2 norm, unscaled",
    order=30,
    folded_on_phone=False,
    scale="log",
)
