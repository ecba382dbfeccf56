"""What watching costs: the agent's own share of step time."""

from __future__ import annotations

from halfscope_server.panels.lines import LinePanel, LineSpec

PANEL = LinePanel(
    id="cost",
    title="Watching cost",
    lines=(LineSpec(name="halfscope.cost_share", words="watching cost", unit="share"),),
    y_title="share of step time",
    section="memory and cost",
    columns=6,
    order=810,
    from_zero=True,
)
