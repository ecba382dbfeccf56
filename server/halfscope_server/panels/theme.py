"""Colour roles and what they are in the light and the dark theme.

The one place where a colour is written down; figures, strips and chips carry roles. Must not import plotly.
Invariant: both themes know the same roles.
"""

from __future__ import annotations

_PAIRS: dict[str, tuple[str, str]] = {
    "page": ("#FFFFFF", "#0E141A"),
    "panel": ("#F6F8FA", "#161E26"),
    "line": ("#D5DCE3", "#2A3540"),
    "text": ("#14202B", "#E6EDF3"),
    "muted": ("#55636F", "#9AA9B6"),
    "focus": ("#1F6FEB", "#79B8FF"),
    # Number formats: lines and chips only.
    "fp32": ("#2E3944", "#E8EDF2"),
    "tf32": ("#2E3944", "#E8EDF2"),
    "fp16": ("#3777F2", "#4568BB"),
    "bf16": ("#367246", "#5DAC74"),
    "fp8": ("#DC4F9D", "#EF92E4"),
    # States of steps: strips and marks only.
    "nodata": ("#D5DCE3", "#2A3540"),
    "clean": ("#CFD8E0", "#33414D"),
    "quiet": ("#9AA7B3", "#5C6B78"),
    "streak": ("#C77C00", "#F7BE4B"),
    "nonfinite": ("#A8002E", "#FF4D6A"),
    "underflow": ("#6B4FD0", "#9B82FF"),
    # Severity: alerts and events only.
    "info": ("#2463A6", "#7DB8F5"),
    "warning": ("#A85F00", "#F7BE4B"),
    "critical": ("#A8002E", "#FF5F78"),
}


def theme() -> dict[str, dict[str, str]]:
    """Role to CSS colour, for `light` and `dark`."""
    return {
        "light": {role: light for role, (light, _) in _PAIRS.items()},
        "dark": {role: dark for role, (_, dark) in _PAIRS.items()},
    }
