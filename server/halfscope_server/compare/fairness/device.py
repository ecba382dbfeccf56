"""The device that a run computes on."""

from __future__ import annotations

from halfscope_server.compare.fairness.base import ValueCheck
from halfscope_server.query.states import device_name

CHECK = ValueCheck(
    id="device",
    title="Device",
    order=60,
    read=lambda view: device_name(view.row) or None,
    confounds=("speed", "memory"),
    missing="known after a run's first step",
)
