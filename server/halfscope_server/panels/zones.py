"""FP16's limits on an axis of exponents: where they lie and what they are called.

Must not import fastapi. Invariant: a limit is drawn where the exponents beyond it are exactly those that are counted
beyond it.
"""

from __future__ import annotations

from dataclasses import dataclass

from halfscope_server.query.exponents import LOST, OVERFLOW, SUBNORMAL, Exponents
from halfscope_server.query.format import power_of_two, superscript

ROOMY_PX = 500
"""Charts narrower than this have short labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """What becomes of numbers beyond a limit."""

    limit: int
    """Exponent."""
    role: str
    short: str
    text: str
    """As FP16 sees it."""
    true_text: str
    """Of the gradient itself."""
    above: bool
    """Whether the zone lies above its limit."""

    def label(self, seen: bool, width_px: int) -> str:
        """What it is called on a chart; without what becomes of it where there is no room."""
        text = self.text if seen else self.true_text
        return text if width_px >= ROOMY_PX else text.partition(":")[0].partition(" (")[0]


OVERFLOWS = Zone(
    limit=OVERFLOW,
    role="nonfinite",
    short="overflow",
    text=f"overflow from {power_of_two(2.0**OVERFLOW)} (largest value 65,504): becomes Inf",
    true_text=f"overflow from {power_of_two(2.0**OVERFLOW)} / scale: becomes Inf",
    above=True,
)
IS_SUBNORMAL = Zone(
    limit=SUBNORMAL,
    role="quiet",
    short="subnormal",
    text=f"subnormal below {power_of_two(2.0**SUBNORMAL)}: fewer bits",
    true_text=f"subnormal below {power_of_two(2.0**SUBNORMAL)} / scale: fewer bits",
    above=False,
)
IS_LOST = Zone(
    limit=LOST,
    role="underflow",
    short="lost",
    text=f"lost below {power_of_two(2.0**LOST)}: becomes 0",
    true_text=f"lost below {power_of_two(2.0**LOST)} / scale: becomes 0",
    above=False,
)
ZONES = (OVERFLOWS, IS_SUBNORMAL, IS_LOST)


def scale_words(found: Exponents, column: int) -> str:
    """The loss scale of a column: `2¹⁶`, or of layers that differ in it `2⁸ to 2¹⁶`."""
    least, most = float(found.least_scale[column]), float(found.most_scale[column])
    return power_of_two(most) if least == most else f"{power_of_two(least)} to {power_of_two(most)}"


def exponent_ticks(low: int, high: int, most: int) -> dict[str, object]:
    """Powers of two as ticks, at most so many."""
    stride = next(s for s in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512) if (high - low) / s <= most)
    values = list(range(-(-low // stride) * stride, high + 1, stride))
    return {"tickmode": "array", "tickvals": values, "ticktext": ["2" + superscript(str(v)) for v in values]}
