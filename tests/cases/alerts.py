"""Which presets each case raises, and at which step first; every other preset stays silent there."""

from __future__ import annotations

EXPECTED: dict[str, dict[str, int]] = {
    "c01": {
        "loss-nonfinite": 0,
        "nonfinite-caught": 2,
        "scale-collapsing": 3,
        "skip-streak": 7,
        "scale-below-one": 16,
    },
    "c03": {"scale-below-one": 16},
    "c05": {"loss-nonfinite": 1, "nonfinite-caught": 3, "scale-collapsing": 4, "skip-streak": 8, "underflow": 17},
    "c14": {},
    "c43": {"input-nonfinite": 4, "loss-nonfinite": 4},
    "c45_training": {"nonfinite-applied": 0},
    "c55_training": {"loss-nonfinite": 5, "nonfinite-caught": 7, "scale-collapsing": 9, "skip-streak": 12},
}
