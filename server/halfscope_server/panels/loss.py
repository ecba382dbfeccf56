"""Loss, with the learning rate as a thin line on the right."""

from __future__ import annotations

from halfscope_server.panels.lines import LinePanel, LineSpec

PANEL = LinePanel(
    id="loss",
    title="Loss",
    lines=(
        LineSpec(name="loss", words="loss"),
        LineSpec(name="lr", words="learning rate", width_px=1, right=True, role="muted", can_smooth=False),
    ),
    y_title="loss",
    right_title="learning rate",
    columns=8,
    height_px=320,
    order=10,
    folded_on_phone=False,
    scale="auto",
)
