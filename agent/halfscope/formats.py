"""Number formats: their limits, and what rounding a value to them once does.

One table that agent and server share. Must not import torch. Invariant: every limit is exact, and rounding is to
nearest, ties to even, with subnormals kept, as torch does it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class NumberFormat:
    """A binary floating-point format."""

    name: str
    exponent_bits: int
    mantissa_bits: int
    """Stored bits, without the implicit one."""
    min_normal_log2: int
    largest: float
    """Largest finite value."""
    has_infinity: bool = True
    """False: what is too large saturates."""

    @property
    def epsilon(self) -> float:
        """Distance from 1 to the next larger value."""
        return math.ldexp(1.0, -self.mantissa_bits)

    @property
    def smallest_normal(self) -> float:
        return math.ldexp(1.0, self.min_normal_log2)

    @property
    def smallest_subnormal(self) -> float:
        return math.ldexp(1.0, self.min_normal_log2 - self.mantissa_bits)

    @property
    def flushed_at(self) -> float:
        """Magnitudes up to here round to zero (this one is a tie, and goes to even); anything above does not."""
        return self.smallest_subnormal / 2

    @property
    def overflows_at(self) -> float:
        """Magnitudes above this round to infinity, or saturate; whether this one does, says `tie_overflows`."""
        return self.largest + math.ldexp(1.0, math.frexp(self.largest)[1] - 2 - self.mantissa_bits)

    @property
    def tie_overflows(self) -> bool:
        """Whether exactly `overflows_at` overflows: the tie goes to even, and the largest value may be that."""
        return math.ldexp(self.largest, self.mantissa_bits + 1 - math.frexp(self.largest)[1]) % 2 == 1


FP32 = NumberFormat(
    name="FP32", exponent_bits=8, mantissa_bits=23, min_normal_log2=-126, largest=(2 - 2.0**-23) * 2.0**127
)
BF16 = NumberFormat(
    name="BF16", exponent_bits=8, mantissa_bits=7, min_normal_log2=-126, largest=(2 - 2.0**-7) * 2.0**127
)
FP16 = NumberFormat(name="FP16", exponent_bits=5, mantissa_bits=10, min_normal_log2=-14, largest=65504.0)
FP8_E4M3 = NumberFormat(
    name="FP8 E4M3", exponent_bits=4, mantissa_bits=3, min_normal_log2=-6, largest=448.0, has_infinity=False
)
FP8_E5M2 = NumberFormat(name="FP8 E5M2", exponent_bits=5, mantissa_bits=2, min_normal_log2=-14, largest=57344.0)

FORMATS = {item.name: item for item in (FP32, BF16, FP16, FP8_E4M3, FP8_E5M2)}
"""By the name that people read."""
